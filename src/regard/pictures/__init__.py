"""Pictures: a built-in corpus of scenes with captions, questions, labels and gold regions; and people's image files.

    from regard.pictures import SceneCorpus, captioned
    for example in SceneCorpus(captioned, 1000):
        pixels, text = example.scene.draw(), example.caption.text

Read `scene` for what a picture contains, `captions` for the rule of captions, `scene_views` for the other views,
`image_files` and `folder` for reading images from disk, `image_store` and `image_batches` for training on them. Public
names load on first use.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazy_exports

if TYPE_CHECKING:
    from regard.pictures.augment import Augment as Augment
    from regard.pictures.captions import (
        WORD_KINDS as WORD_KINDS,
        SceneCaption as SceneCaption,
        SceneWord as SceneWord,
        caption_scene as caption_scene,
    )
    from regard.pictures.folder import (
        ImageFile as ImageFile,
        ImageFolder as ImageFolder,
        ImageTable as ImageTable,
        LoadedImage as LoadedImage,
    )
    from regard.pictures.image_batches import (
        CaptionBatch as CaptionBatch,
        CaptionCollator as CaptionCollator,
        ImageLabelBatch as ImageLabelBatch,
        ImageLabelCollator as ImageLabelCollator,
        PointingBatch as PointingBatch,
        PointingCollator as PointingCollator,
    )
    from regard.pictures.image_files import (
        ENDINGS as ENDINGS,
        MAX_PIXELS as MAX_PIXELS,
        Fit as Fit,
        decode_image as decode_image,
        read_image as read_image,
        resize_box as resize_box,
        resize_image as resize_image,
    )
    from regard.pictures.image_store import (
        NO_REGION as NO_REGION,
        FileImages as FileImages,
        ImageStore as ImageStore,
        SceneImages as SceneImages,
    )
    from regard.pictures.patches import PatchGrid as PatchGrid, Picture as Picture
    from regard.pictures.render import (
        bounding_box as bounding_box,
        decode_runs as decode_runs,
        encode_runs as encode_runs,
    )
    from regard.pictures.scene import Scene as Scene
    from regard.pictures.scene_corpus import SceneCorpus as SceneCorpus
    from regard.pictures.scene_files import (
        PICTURE_VIEWS as PICTURE_VIEWS,
        write_pictures as write_pictures,
    )
    from regard.pictures.scene_objects import (
        COLOURS as COLOURS,
        KEY_SHAPES as KEY_SHAPES,
        ORDINARY_SHAPES as ORDINARY_SHAPES,
        SHAPES as SHAPES,
        SIZES as SIZES,
        TEXTURES as TEXTURES,
        Background as Background,
        SceneObject as SceneObject,
        Stroke as Stroke,
    )
    from regard.pictures.scene_rng import (
        SPLITS as SPLITS,
        SceneRng as SceneRng,
        SceneSettings as SceneSettings,
        split_of_scene as split_of_scene,
    )
    from regard.pictures.scene_views import (
        CaptionedScene as CaptionedScene,
        LabelledScene as LabelledScene,
        ScenePhrase as ScenePhrase,
        SceneQuestion as SceneQuestion,
        captioned as captioned,
        doubled as doubled,
        labelled as labelled,
        phrase as phrase,
        question as question,
    )

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "augment": ("Augment",),
        "captions": ("WORD_KINDS", "SceneCaption", "SceneWord", "caption_scene"),
        "folder": ("ImageFile", "ImageFolder", "ImageTable", "LoadedImage"),
        "image_batches": (
            "CaptionBatch",
            "CaptionCollator",
            "ImageLabelBatch",
            "ImageLabelCollator",
            "PointingBatch",
            "PointingCollator",
        ),
        "image_files": ("ENDINGS", "Fit", "MAX_PIXELS", "decode_image", "read_image", "resize_box", "resize_image"),
        "image_store": ("NO_REGION", "FileImages", "ImageStore", "SceneImages"),
        "patches": ("PatchGrid", "Picture"),
        "render": ("bounding_box", "decode_runs", "encode_runs"),
        "scene": ("Scene",),
        "scene_corpus": ("SceneCorpus",),
        "scene_files": ("PICTURE_VIEWS", "write_pictures"),
        "scene_objects": (
            "COLOURS",
            "KEY_SHAPES",
            "ORDINARY_SHAPES",
            "SHAPES",
            "SIZES",
            "TEXTURES",
            "Background",
            "SceneObject",
            "Stroke",
        ),
        "scene_rng": ("SPLITS", "SceneRng", "SceneSettings", "split_of_scene"),
        "scene_views": (
            "CaptionedScene",
            "LabelledScene",
            "ScenePhrase",
            "SceneQuestion",
            "captioned",
            "doubled",
            "labelled",
            "phrase",
            "question",
        ),
    },
)
