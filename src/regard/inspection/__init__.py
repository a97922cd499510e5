"""Inspecting models: records of attention, attribution, word alignment, the head atlas (`atlas`), head importance and
pruning (`heads`), interventions. Public names load on first use.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.inspection.alignment.align import (
        BEST as BEST,
        Aligned as Aligned,
        AlignmentExtractor as AlignmentExtractor,
        Alignments as Alignments,
        align as align,
        symmetrize_aligned as symmetrize_aligned,
    )
    from regard.inspection.alignment.evaluate import (
        Gold as Gold,
        TranslationEvaluation as TranslationEvaluation,
        evaluate_links as evaluate_links,
        evaluate_translator as evaluate_translator,
        read_gold as read_gold,
    )
    from regard.inspection.alignment.extract import AlignmentSource as AlignmentSource, word_maps as word_maps
    from regard.inspection.alignment.links import (
        extract_links as extract_links,
        sinkhorn as sinkhorn,
        to_pharaoh as to_pharaoh,
        translation_links as translation_links,
        translation_to_dict as translation_to_dict,
        unnormalized as unnormalized,
        word_map as word_map,
    )
    from regard.inspection.attribution.gradients import (
        attention_gradients as attention_gradients,
        compute_gradients as compute_gradients,
        gradient_times_input as gradient_times_input,
        integrated_input_gradients as integrated_input_gradients,
        intercept_embeddings as intercept_embeddings,
        intercept_weights as intercept_weights,
    )
    from regard.inspection.attribution.head_statistics import (
        HeadStatistics as HeadStatistics,
        all_head_statistics as all_head_statistics,
    )
    from regard.inspection.attribution.measure import (
        Rerun as Rerun,
        expect_measures as expect_measures,
        measure as measure,
        pool_map_to_words as pool_map_to_words,
    )
    from regard.inspection.attribution.norms import transformed_norms as transformed_norms
    from regard.inspection.attribution.relevance import RelevanceLayer as RelevanceLayer, relevance as relevance
    from regard.inspection.attribution.rollout import RolloutLayer as RolloutLayer, rollout as rollout
    from regard.inspection.bootstrap import (
        CONFIDENCE_LEVEL as CONFIDENCE_LEVEL,
        Bootstrap as Bootstrap,
        ConfidenceInterval as ConfidenceInterval,
    )
    from regard.inspection.classify import Classifier as Classifier, PictureClassifier as PictureClassifier
    from regard.inspection.distances import (
        MAX_JSD as MAX_JSD,
        jsd as jsd,
        kendall_tau as kendall_tau,
        overlap as overlap,
        tvd as tvd,
    )
    from regard.inspection.embeddings import (
        Embedded as Embedded,
        Embedder as Embedder,
        Layer as Layer,
        Pool as Pool,
        concat_embedded as concat_embedded,
        save_embedded as save_embedded,
    )
    from regard.inspection.fill_mask import MaskFiller as MaskFiller
    from regard.inspection.interventions import (
        HeadIntervention as HeadIntervention,
        WeightEdits as WeightEdits,
        apply_interventions as apply_interventions,
        intervene as intervene,
    )
    from regard.inspection.map_figure import (
        MATPLOTLIB_SETTINGS as MATPLOTLIB_SETTINGS,
        draw_map as draw_map,
        figure_label as figure_label,
        save_drawing as save_drawing,
    )
    from regard.inspection.record.collect import collect as collect
    from regard.inspection.record.collector import RecordSpec as RecordSpec
    from regard.inspection.record.place import PlaceRecord as PlaceRecord
    from regard.inspection.record.record import (
        GenerationStep as GenerationStep,
        MeasureMap as MeasureMap,
        Record as Record,
    )
    from regard.inspection.record_labels import (
        find_head_labels as find_head_labels,
        with_head_labels as with_head_labels,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "alignment.extract": (
            "AlignmentSource",
            "word_maps",
        ),
        "alignment.align": ("Aligned", "AlignmentExtractor", "Alignments", "BEST", "align", "symmetrize_aligned"),
        "alignment.evaluate": ("Gold", "TranslationEvaluation", "evaluate_links", "evaluate_translator", "read_gold"),
        "alignment.links": (
            "unnormalized",
            "sinkhorn",
            "translation_links",
            "extract_links",
            "to_pharaoh",
            "translation_to_dict",
            "word_map",
        ),
        "attribution.gradients": (
            "attention_gradients",
            "gradient_times_input",
            "compute_gradients",
            "integrated_input_gradients",
            "intercept_embeddings",
            "intercept_weights",
        ),
        "attribution.head_statistics": ("HeadStatistics", "all_head_statistics"),
        "attribution.measure": ("Rerun", "expect_measures", "measure", "pool_map_to_words"),
        "attribution.norms": ("transformed_norms",),
        "attribution.relevance": ("RelevanceLayer", "relevance"),
        "attribution.rollout": ("RolloutLayer", "rollout"),
        "classify": ("Classifier", "PictureClassifier"),
        "embeddings": ("Embedded", "Embedder", "Layer", "Pool", "concat_embedded", "save_embedded"),
        "fill_mask": ("MaskFiller",),
        "record_labels": ("with_head_labels", "find_head_labels"),
        "interventions": ("HeadIntervention", "WeightEdits", "apply_interventions", "intervene"),
        "map_figure": ("MATPLOTLIB_SETTINGS", "draw_map", "figure_label", "save_drawing"),
        "record.collect": ("collect",),
        "record.collector": ("RecordSpec",),
        "record.place": ("PlaceRecord",),
        "record.record": ("MeasureMap", "Record", "GenerationStep"),
        "bootstrap": ("CONFIDENCE_LEVEL", "Bootstrap", "ConfidenceInterval"),
        "distances": ("MAX_JSD", "jsd", "kendall_tau", "overlap", "tvd"),
    },
)
