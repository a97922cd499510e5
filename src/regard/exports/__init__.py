"""Exports of trained models to other programs: ONNX and CTranslate2."""
