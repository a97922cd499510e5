"""Looking into models: records of what they attended to, attribution, word alignment, what heads look at (`atlas`),
which heads matter (`heads`), interventions. Public names load on first use.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.inspection.alignment.align import (
        BEST as BEST,
        Aligned as Aligned,
        Aligning as Aligning,
        Alignments as Alignments,
        align as align,
        both_ways as both_ways,
    )
    from regard.inspection.alignment.evaluate import (
        Gold as Gold,
        Judged as Judged,
        evaluate_links as evaluate_links,
        judge as judge,
        read_gold as read_gold,
    )
    from regard.inspection.alignment.extract import Reading as Reading, word_maps as word_maps
    from regard.inspection.alignment.links import (
        as_it_is as as_it_is,
        balanced as balanced,
        links as links,
        links_of as links_of,
        pharaoh as pharaoh,
        told as told,
        word_map as word_map,
    )
    from regard.inspection.attribution.gradients import (
        gradient_times_input as gradient_times_input,
        gradients as gradients,
        integrated_inputs as integrated_inputs,
        vectors_through as vectors_through,
        weights_through as weights_through,
    )
    from regard.inspection.attribution.head_statistics import HeadStatistics as HeadStatistics, every_head as every_head
    from regard.inspection.attribution.measure import (
        Rerun as Rerun,
        expect_measures as expect_measures,
        measure as measure,
        pooled as pooled,
    )
    from regard.inspection.attribution.norms import sent_norms as sent_norms
    from regard.inspection.attribution.rollout import RolloutLayer as RolloutLayer, rollout as rollout
    from regard.inspection.classify import Classifier as Classifier
    from regard.inspection.embeddings import (
        Embedded as Embedded,
        Embedder as Embedder,
        Layer as Layer,
        Pool as Pool,
        joined as joined,
        save_embedded as save_embedded,
    )
    from regard.inspection.fill_mask import Filler as Filler
    from regard.inspection.head_labels import noted as noted, notes_of as notes_of
    from regard.inspection.interventions import (
        Change as Change,
        Edits as Edits,
        changed as changed,
        intervene as intervene,
    )
    from regard.inspection.map_figure import SETTINGS as SETTINGS, draw_map as draw_map
    from regard.inspection.record.collect import RecordSpec as RecordSpec, collect as collect
    from regard.inspection.record.place import Place as Place
    from regard.inspection.record.record import MeasureMap as MeasureMap, Record as Record, Step as Step
    from regard.inspection.statistics import (
        LARGEST_JSD as LARGEST_JSD,
        Bootstrap as Bootstrap,
        Estimate as Estimate,
        jsd as jsd,
        kendall_tau as kendall_tau,
        shared as shared,
        tvd as tvd,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "alignment.extract": (
            "Reading",
            "word_maps",
        ),
        "alignment.align": ("Aligned", "Aligning", "Alignments", "BEST", "align", "both_ways"),
        "alignment.evaluate": ("Gold", "Judged", "evaluate_links", "judge", "read_gold"),
        "alignment.links": (
            "as_it_is",
            "balanced",
            "links",
            "links_of",
            "pharaoh",
            "told",
            "word_map",
        ),
        "attribution.gradients": (
            "gradient_times_input",
            "gradients",
            "integrated_inputs",
            "vectors_through",
            "weights_through",
        ),
        "attribution.head_statistics": ("HeadStatistics", "every_head"),
        "attribution.measure": ("Rerun", "expect_measures", "measure", "pooled"),
        "attribution.norms": ("sent_norms",),
        "attribution.rollout": ("RolloutLayer", "rollout"),
        "classify": ("Classifier",),
        "embeddings": ("Embedded", "Embedder", "Layer", "Pool", "joined", "save_embedded"),
        "fill_mask": ("Filler",),
        "head_labels": ("noted", "notes_of"),
        "interventions": ("Change", "Edits", "changed", "intervene"),
        "map_figure": ("SETTINGS", "draw_map"),
        "record.collect": ("RecordSpec", "collect"),
        "record.place": ("Place",),
        "record.record": ("MeasureMap", "Record", "Step"),
        "statistics": ("Bootstrap", "Estimate", "LARGEST_JSD", "jsd", "kendall_tau", "shared", "tvd"),
    },
)
