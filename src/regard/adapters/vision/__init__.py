"""Pictures given to models of transformers: image files in, and which token of a model is which patch of which picture.

`images` reads what users pass; `preprocess` makes pixel tensors of it; `crops` says from such tensors what an encoder
reads, with the pictures to show; `encoders` and `text_tokens` name the tokens of a model's two halves; `prompt` writes
a text with places for pictures.
"""
