"""What the shrinking rule of zoo_models.py cannot know: settings of single architectures, so that their parts fit."""

from __future__ import annotations

from typing import Any

RESNET = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 32, 32],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage2", "stage3", "stage4"],
}
DETR: dict[str, Any] = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": RESNET,
}
SWIN_STAGES: dict[str, Any] = {
    "embed_dim": 16,
    "num_heads": [2, 2, 4, 4],
    "depths": [2, 1, 1, 1],
    "window_size": 4,
    "image_size": 64,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
    "out_indices": [1, 2, 3, 4],
}
HGNET: dict[str, Any] = {
    "model_type": "hgnet_v2",
    "embedding_size": 8,
    "hidden_sizes": [16, 32, 32, 32],
    "depths": [1, 1, 1, 1],
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 16, 32, 32],
    "stage_mid_channels": [8, 8, 8, 8],
    "stage_out_channels": [16, 32, 32, 32],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "out_indices": [2, 3, 4],
    "out_features": ["stage2", "stage3", "stage4"],
}
RT_RESNET: dict[str, Any] = {
    "model_type": "rt_detr_resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 32, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_indices": [2, 3, 4],
    "out_features": ["stage2", "stage3", "stage4"],
}
STAGES: dict[str, Any] = {  # of a backbone whose every layer is seen
    "num_hidden_layers": 4,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
    "out_indices": [1, 2, 3, 4],
    "image_size": 32,
}
DEPTH: dict[str, Any] = {"backbone_config": STAGES, "neck_hidden_sizes": [8, 8, 16, 16], "reassemble_hidden_size": 32}
RT_DETR: dict[str, Any] = {"encoder_in_channels": [32] * 3, "decoder_in_channels": [32] * 3}
SAM_DECODER = {"iou_head_hidden_dim": 32}
SAM_VISION = {"output_channels": 32, "window_size": 2, "global_attn_indexes": [1], "num_pos_feats": 16}
SAM: dict[str, Any] = {"vision_config": SAM_VISION, "mask_decoder_config": SAM_DECODER}
VIBEVOICE: dict[str, Any] = {"num_filters": 4, "depths": [1, 1, 1], "downsampling_ratios": [2, 2]}
CODEC: dict[str, Any] = {"codebook_dim": 32, "num_filters": 4, "upsample_groups": 32}
MIMI = CODEC | {"vector_quantization_hidden_dimension": 32}
SWIN: dict[str, Any] = {"embed_dim": 16, "num_heads": [2, 2, 4], "depths": [2, 2, 2], "window_size": 4, "patch_size": 2}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}}
SERIES: dict[str, Any] = {
    "prediction_length": 4,
    "context_length": 16,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 1,
}
WHOLE_MROPE = {"rope_parameters": MROPE["rope_parameters"] | {"partial_rotary_factor": 1.0}}
NARROW_HEADS = {"head_dim": 8}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
OVERRIDES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(["detr", "conditional_detr", "dab-detr", "table-transformer"], DETR),
    "deformable_detr": DETR | {"num_feature_levels": 3},
    **dict.fromkeys(["swin", "donut-swin", "maskformer-swin"], SWIN),
    "swinv2": SWIN | {"pretrained_window_sizes": [0, 0, 0]},
    "swin2sr": SWIN | {"patch_size": 1},
    **dict.fromkeys(["time_series_transformer", "autoformer", "informer"], SERIES),
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "bamba": MAMBA | {"attn_layer_indices": [1], "attn_rotary_emb": 8},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64, "mamba_expand": 2},
    "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention"]},
    "zamba": {
        "num_hidden_layers": 6,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "mamba"],
        "n_mamba_heads": 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "use_mamba_kernels": False,
    },
    "mamba2": {"num_heads": 8, "head_dim": 8, "expand": 2, "n_groups": 1, "chunk_size": 8},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "reformer": {
        "axial_pos_shape": [4, 16],
        "axial_pos_embds_dim": [8, 24],
        "hidden_size": 32,
        "attn_layers": ["local", "lsh"],
        "num_attention_heads": 2,
        "attention_head_size": 16,
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 4,
        "num_hashes": 1,
        "max_position_embeddings": 64,
    },
    "deepseek_v2": {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "num_key_value_heads": 4},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "xmod": {"default_language": "en_XX"},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    **dict.fromkeys(["hunyuan_v1_moe", "hunyuan_v1_dense", "ministral"], NARROW_HEADS),
    "lilt": {"hidden_size": 48, "num_attention_heads": 4, "channel_shrink_ratio": 2, "max_2d_position_embeddings": 64},
    "layoutlm": {"max_2d_position_embeddings": 64},
    "patchtst": {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4},
    "kimi_linear": {"num_experts_per_token": 2, "num_experts": 4, "num_expert_group": 1, "topk_group": 1},
    "hy_v4": {"indexer_types": ["full", "shared"]},
    "decision_transformer": {"hidden_size": 32, "n_head": 4},
    "vits": {
        "hidden_size": 32,
        "flow_size": 32,
        "spectrogram_bins": 17,
        "upsample_initial_channel": 16,
        "ffn_dim": 48,
        "depth_separable_num_layers": 1,
        "duration_predictor_flow_bins": 10,
        "wavenet_dilation_rate": 1,
    },
    "mobilevitv2": {"image_size": 64},
    "wav2vec2-bert": {"feature_projection_input_dim": 16},
    **dict.fromkeys("qwen2_vl_text qwen2_5_vl_text glm_ocr_text paddleocr_vl_text glm46v_text".split(), MROPE),
    "qwen2_5_omni_text": MROPE,
    **dict.fromkeys("glm4v_text glm_image_text glm4v_moe_text".split(), WHOLE_MROPE),
    "hunyuan_vl_text": {
        "head_dim": 8,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "xdrope_section": [1, 1, 1, 1],
            "mrope_section": [1, 1, 1, 1],
        },
    },
    **dict.fromkeys("swin2sr".split(), SWIN | {"patch_size": 1, "image_size": 16}),
    "efficientnet": {"image_size": 64, "hidden_dim": 2560},
    "align_vision_model": {"hidden_dim": 2560},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 48},
    },
    "moonshine_streaming": {"num_key_value_heads": 4},
    "longcat_flash": {"num_layers": 2, "head_dim": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "bros": {"hidden_size": 64},
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8, "input_size": 32, "rel_pos_bins": 8, "rel_2d_pos_bins": 8},
    "maskformer": {"backbone_config": SWIN_STAGES, "decoder_config": DETR, "fpn_feature_size": 32},
    "mask2former": {"backbone_config": SWIN_STAGES, "feature_size": 32, "encoder_feedforward_dim": 48},
    "oneformer": {
        "backbone_config": SWIN_STAGES,
        "conv_dim": 32,
        "mask_dim": 32,
        "encoder_feedforward_dim": 48,
        "text_encoder_width": 32,
        "text_encoder_num_layers": 1,
    },
    "clap_audio_model": {
        "spec_size": 64,
        "num_mel_bins": 16,
        "window_size": 4,
        "patch_size": 4,
        "patch_embeds_hidden_size": 8,
        "depths": [2, 2, 2],
        "num_attention_heads": [2, 2, 4],
        "num_hidden_layers": 3,
    },
    "bridgetower": {
        "vision_config": {"hidden_size": 128, "num_hidden_layers": 3},  # its heads are 64 wide
        "text_config": {"num_hidden_layers": 3},
    },
    "blip-2": {"num_query_tokens": 6, "image_token_id": 80},
    "instructblip": {"num_query_tokens": 6, "image_token_id": 80},
    "instructblipvideo": {"num_query_tokens": 6, "video_token_id": 80},
    "kosmos-2": {"latent_query_num": 4},
    "kosmos_2_text_model": {"layers": 2},
    "siglip2_vision_model": {"num_patches": 16},
    "align": {"projection_dim": 640, "vision_config": {"image_size": 64}},
    "sam": SAM,
    "sam_hq": SAM | {"mask_decoder_config": SAM_DECODER | {"vit_dim": 32}},
    "sam2_hiera_det_model": {
        "image_size": [64, 64],
        "hidden_size": 16,
        "embed_dim_per_stage": [16, 32, 64, 128],
        "num_attention_heads_per_stage": [1, 2, 4, 8],
        "blocks_per_stage": [1, 2, 2, 1],
        "global_attention_blocks": [4],
        "window_size_per_stage": [4, 2, 2, 2],
        "window_positional_embedding_background_size": [2, 2],
    },
    "sam2_vision_model": {
        "backbone_channel_list": [128, 64, 32, 16],
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    },
    "sam2": {"prompt_encoder_config": {"image_size": 64, "patch_size": 16}, "mask_decoder_config": SAM_DECODER},
    **dict.fromkeys(["rt_detr", "rt_detr_v2"], RT_DETR | {"backbone_config": RT_RESNET}),
    **dict.fromkeys(
        "d_fine deimv2 pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4".split(), RT_DETR | {"backbone_config": HGNET}
    ),
    "lw_detr_vit": {"pretrain_image_size": 32, "num_windows": 4, "window_block_indices": [0], "out_indices": [1, 2]},
    "lw_detr": {"projector_scale_factors": [1.0]},
    "encodec": CODEC,
    **dict.fromkeys(["mimi", "mimi_encoder", "mimi_decoder"], MIMI),
    "tvp": {"backbone_config": RESNET | {"out_features": ["stage4"]}, "max_img_size": 64, "visual_prompt_size": 4},
    "levit": {
        "hidden_sizes": [32, 32, 32],
        "num_attention_heads": [2, 2, 2],
        "key_dim": [8, 8, 8],
        "depths": [1, 1, 1],
        "image_size": 64,
        "patch_size": 16,
    },
    "pvt": {
        "num_encoder_blocks": 4,
        "hidden_sizes": [8, 16, 32, 32],
        "num_attention_heads": [1, 2, 2, 2],
        "depths": [1, 1, 1, 1],
        "image_size": 64,
    },
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "blt": {"num_hidden_layers": 2, "encoder_hash_byte_group_vocab": 64},
    "bailing_hybrid": {"n_group": 1, "topk_group": 1, "num_local_experts": 4},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
        },
    },
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
    "diffusion_gemma": {"canvas_length": 8},
    "gemma4_assistant": {
        "backbone_hidden_size": 32,
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 2},
    },
    "glm5_next_text": {"index_topk": 4, "index_kpool": 2, "linear_head_dim": 8, "linear_num_heads": 4},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 4,
        "indexer_compress_ratio": 2,
        "hc_lowrank": 8,
        "ngram_vocab_size_base": 64,
    },
    "mistral_large4_text": {"kv_source_layers": [0, 1], "no_rope_layers": [1, 0]},
    "step3p7_text": {"n_routed_experts": 4, "share_expert_dim": 16, "sliding_window": 5},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "molmo2_vision": {"image_size": [32, 32], "num_position_embeddings": 16},
    "chameleon": {
        "vocabulary_map": {"<image>": 80} | {f"IMGIMG{chr(65 + digit)}Z": 81 + digit for digit in range(8)},
        "vq_config": {
            "num_embeddings": 8,
            "resolution": 32,
            "base_channels": 32,
            "latent_channels": 32,
            "channel_multiplier": [1, 1, 1],
            "num_res_blocks": 1,
        },
    },
    "emu3": {
        "vocabulary_map": {"<image>": 80, "<|extra_200|>": 79}
        | {f"<|visual token {digit:06d}|>": 81 + digit for digit in range(8)},
        "vq_config": {"codebook_size": 8, "base_channels": 32, "num_res_blocks": 1, "channel_multiplier": [1, 1, 1, 1]},
    },
    "emu3_text_model": {"pad_token_id": 0},
    "seggpt": {
        "image_size": [64, 32],
        "pretrain_image_size": 32,
        "merge_index": 0,
        "intermediate_hidden_state_indices": [0, 1],
    },
    "granite_speech5_encoder": {"context_size": 16, "num_mel_bins": 20},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 8}},
    "pocket_tts": {"flow_head_config": {"condition_dim": 32}},
    "gradium_phonon_tts": {"flow_head_config": {"condition_dim": 32}},
    "deepseek_ocr2_text": {
        "mlp_layer_types": ["dense", "sparse"],
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
    },
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
    "muse_glimmer_vision": {"pos_emb_height": 8, "pos_emb_width": 8},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "upernet": {"backbone_config": RESNET | {"out_features": ["stage1", "stage2", "stage3", "stage4"]}},
    "xlstm": {"hidden_size": 128, "num_heads": 4, "embedding_dim": 128},
    "sapiens2": {"num_key_value_heads_per_layer": [4, 2]},
    "efficientloftr": {
        "out_features": [8, 8, 16, 32],
        "stage_num_blocks": [1, 1, 1, 1],
        "num_attention_layers": 1,
        "num_attention_heads": 8,
    },
    "ernie4_5_vl_moe_text": {
        "mlp_layer_types": ["dense", "sparse"],
        "moe_intermediate_size": [16, 8],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
    },
    "videomae": {"num_frames": 4},
    "vivit": {"num_frames": 4, "tubelet_size": [2, 8, 8]},
    "xclip_vision_model": {"mit_hidden_size": 32, "mit_intermediate_size": 48, "mit_num_attention_heads": 4},
    "xclip": {"prompt_num_attention_heads": 4},
    **dict.fromkeys(["depth_anything", "prompt_depth_anything"], DEPTH),
    "zoedepth": DEPTH | {"bottleneck_features": 32, "bin_embedding_dim": 16},
    "tipsv2_dpt": DEPTH,
    "chmv2": {"backbone_config": STAGES, "reassemble_factors": [4, 2, 1, 0.5], "post_process_channels": [8, 8, 16, 16]},
    "depth_pro": {
        "patch_size": 32,
        "intermediate_hook_ids": [1, 0],
        "intermediate_feature_dims": [32, 32],
        "scaled_images_feature_dims": [32, 32, 32],
        "merge_padding_value": 1,
        **{
            f"{part}_model_config": {"image_size": 32, "patch_size": 4, "num_hidden_layers": 2}
            for part in ("image", "patch", "fov")
        },
    },
    "kimi_k25_vision": {"pos_emb_height": 8, "pos_emb_width": 8},
    "minicpm_ocr_vision": {"insert_layer_id": 0},
    "minicpmv4_7_vision": {"insert_layer_id": 0},
    "xcodec": {"codebook_dim": 64},
    "neomme": {"head_dim": 16},
    "superglue": {
        "keypoint_detector_config": {
            "encoder_hidden_sizes": [8, 8, 8, 8],
            "decoder_hidden_size": 32,
            "descriptor_decoder_dim": 32,
        },
        "keypoint_encoder_sizes": [8, 16],
        "gnn_layers_types": ["self", "cross"],
    },
    "vibevoice_acoustic_tokenizer": VIBEVOICE,
    "vibevoice_acoustic_tokenizer_encoder": VIBEVOICE,
    "vibevoice_acoustic_tokenizer_decoder": VIBEVOICE,
    "vitmatte": {"fusion_hidden_sizes": [8, 8, 8, 8], "convstream_hidden_sizes": [8, 8, 16]},
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]], "spatial_target_layers": [0, 0, 1, 1]},
    "nemotron3_5_transcribe": {"blank_token_id": 98},
    "voxtral_realtime": {"audio_config": {"num_mel_bins": 16}},
}
