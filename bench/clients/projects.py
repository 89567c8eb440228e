"""The table of clients: projects whose own tests call torch.compile.

    PROJECTS["kornia"].packages       what pip installs
    PROJECTS["kornia"].paths          what is taken from its repository, at the tag of the installed release

The tests are the project's: a test that torch.compile passes and Burnish fails is a defect of Burnish, unless it asks
about Dynamo itself (counts of its frames, its error classes, its caches); such tests are named in `about_dynamo`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Project:
    repository: str
    """Owner and name on GitHub."""
    package: str
    """The distribution whose version names the tag."""
    version: str | None = None
    """None: the newest release. Otherwise the newest one whose sources are at hand."""
    packages: tuple[str, ...] = ()
    """Further packages that its tests need. Torch and what depends on its build come from our own environment."""
    tag: str = "v{version}"
    paths: tuple[str, ...] = ("tests",)
    tests: tuple[str, ...] = ("tests",)
    """What pytest collects, relative to the sources."""
    arguments: tuple[str, ...] = ()
    """Further arguments of pytest: selections, and switches of the project."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that its tests ask for."""
    edits: tuple[tuple[str, str, str], ...] = ()
    """A file, what to replace in it, and by what: where tests are skipped that run on any machine."""
    calls: str = ""
    """How the tests call torch.compile."""
    about_dynamo: tuple[str, ...] = ()
    """Parts of names of tests about Dynamo itself."""


TRANSFORMERS = (
    *("bert", "roberta", "albert", "electra", "distilbert", "deberta_v2", "modernbert", "gpt2", "gpt_neox", "opt"),
    *("bloom", "falcon", "llama", "llama4", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "gemma"),
    *("gemma2", "gemma3", "gemma3n", "phi3", "cohere2", "olmoe", "deepseek_v3", "gpt_oss", "granitemoehybrid", "bamba"),
    *("mamba", "mamba2", "falcon_mamba", "jamba", "lfm2", "recurrent_gemma", "rwkv", "t5", "bart", "moonshine"),
    *("whisper", "wav2vec2", "hubert", "vit", "beit", "swin", "dinov2", "vitpose", "clip", "siglip", "detr", "sam"),
    *("llava", "qwen2_vl", "smolvlm", "blip_2", "musicgen", "mimi", "diffllama", "zamba2", "t5gemma"),
)
IMAGE_PROCESSORS = ("vit", "clip", "detr", "sam", "llava", "qwen2_vl", "idefics3", "vitmatte", "pixtral", "siglip2")
"""Types of models, one for each kind of architecture."""
ACCELERATOR, MARK = "    @require_torch_accelerator\n", "    @pytest.mark.torch_compile_test\n"
"""Decorators of their tests that compile."""


PROJECTS: dict[str, Project] = {
    "tensordict": Project(
        "pytorch/tensordict",
        "tensordict",
        version="0.14.0",
        paths=("test", "pytest.ini"),
        tests=("test/compile/test_compile.py",),
        arguments=("-k", "not reduce-overhead"),
        calls="fullgraph=True, on functions of TensorDict, tensor classes and modules; some with backend='eager'",
    ),
    "torchao": Project(
        "pytorch/ao",
        "torchao",
        version="0.18.0",
        packages=("parameterized", "expecttest"),
        paths=("test", "pytest.ini"),
        tests=(
            "test/dtypes/test_bitpacking.py",
            "test/dtypes/test_affine_quantized_float.py",
            "test/quantization/quantize_/workflows/int8",
            "test/quantization/quantize_/workflows/intx",
            "test/quantization/quantize_/workflows/nf4/test_nf4_tensor.py",
            "test/quantization/quantize_/workflows/float8/test_float8_tensor.py",
            "test/quantization/test_quant_api.py",
            "test/prototype/test_quantized_training.py",
            "test/prototype/test_uintx_bit_packed_tensor.py",
            "test/prototype/test_int8_lut_tensor.py",
            "test/prototype/test_awq.py",
            "test/test_low_bit_optim.py",
        ),
        arguments=("-k", "compile or optim or linear or quant"),
        calls="torch.compile(model, fullgraph=True) of quantized modules, and of optimizer steps",
        about_dynamo=("fp8_inductor",),
    ),
    "transformers": Project(
        "huggingface/transformers",
        "transformers",
        version="5.15.0",
        packages=("parameterized", "datasets", "sentencepiece", "protobuf", "timeout-decorator"),
        paths=("tests", "utils", "src", "pyproject.toml", "conftest.py"),
        tests=(
            *(f"tests/models/{name}/test_modeling_{name}.py" for name in TRANSFORMERS),
            *(f"tests/models/{name}/test_image_processing_{name}.py" for name in IMAGE_PROCESSORS),
            "tests/models/llava_onevision/test_video_processing_llava_onevision.py",
            "tests/generation/test_stopping_criteria.py",
            "tests/utils/test_cache_utils.py",
            "tests/utils/test_deprecation.py",
            "tests/utils/test_generic.py",
            "tests/utils/test_import_utils.py",
            "tests/test_executorch.py",
            "tests/trainer/test_trainer.py",
        ),
        arguments=("-k", "compile or compilation or static_cache and not bnb", "-o", "addopts="),
        variables=(("TRANSFORMERS_TEST_DEVICE", "cpu"),),
        edits=(
            ("conftest.py", "    register_network_debug_plugin(config)\n", ""),
            (
                "tests/test_modeling_common.py",
                f"{ACCELERATOR}{MARK}    @slow\n    def test_sdpa_can",
                "    def test_sdpa_can",
            ),
            ("tests/test_modeling_common.py", '["cuda", "rocm", "xpu"]', '["cuda", "rocm", "xpu", "cpu"]'),
            (
                "tests/test_modeling_common.py",
                f"    @slow\n{ACCELERATOR}{MARK}    def test_torch",
                "    def test_torch",
            ),
            ("tests/test_image_processing_common.py", f"    @slow\n{ACCELERATOR}    @require_vision\n{MARK}", ""),
        ),
        calls="generate() with static caches, models with fullgraph=True and dynamic=True, training, image processors",
    ),
    "kornia": Project(
        "kornia/kornia",
        "kornia",
        version="0.8.3",
        packages=("parameterized",),
        paths=("tests", "conftest.py", "testing", "pyproject.toml"),
        tests=("tests",),
        arguments=(
            *("-k", "dynamo", "--ignore", "tests/onnx"),
            *("--device", "cpu", "--dtype", "float32", "--optimizer", "inductor"),
        ),
        variables=(("KORNIA_TEST_OPTIMIZER", "inductor"),),
        calls="torch.compile(op, backend=--optimizer), on image operators and augmentations",
    ),
    "diffusers": Project(
        "huggingface/diffusers",
        "diffusers",
        version="0.40.0",
        packages=("parameterized", "requests"),
        paths=("tests", "pyproject.toml", "setup.py"),
        tests=("tests/models",),
        arguments=("-k", "torch_compile or different_shapes"),
        variables=(("RUN_COMPILE", "yes"), ("DIFFUSERS_TEST_DEVICE", "cpu")),
        edits=(("tests/models/testing_utils/compile.py", "@require_accelerator\n", ""),),
        calls="torch.compile(model, fullgraph=True), also with dynamic=True for several sizes, and repeated blocks",
    ),
    "torchrl": Project(
        "pytorch/rl",
        "torchrl",
        version="0.13.3",
        packages=("tensordict==0.13.0", "gymnasium", "scipy"),
        paths=("test", "pytest.ini"),
        tests=("test/compile",),
        calls="torch.compile of losses, value estimators and training steps over TensorDict",
    ),
    "pyg": Project(
        "pyg-team/pytorch_geometric",
        "torch_geometric",
        version="2.8.0",
        tag="{version}",
        packages=("scipy",),
        paths=("test", "pyproject.toml"),
        tests=("test/nn", "test/utils/test_softmax.py", "test/test_edge_index.py", "test/test_isinstance.py"),
        arguments=("-k", "compile or torch_compile"),
        calls="torch.compile of message passing layers and models, with dynamic=True as well",
    ),
    "e3nn": Project(
        "e3nn/e3nn",
        "e3nn",
        version="0.6.0",
        tag="{version}",
        tests=("tests/o3", "tests/nn", "tests/math"),
        arguments=("-k", "not normalized and not normalization"),  # statistics of many draws, which compile nothing
        calls="assert_torch_compile: fullgraph=True, on modules made of generated code",
    ),
    "lightning": Project(
        "Lightning-AI/pytorch-lightning",
        "lightning",
        version="2.6.5",
        tag="{version}",
        paths=("tests", "pyproject.toml"),
        tests=(
            "tests/tests_fabric/test_wrappers.py",
            "tests/tests_fabric/test_fabric.py",
            "tests/tests_pytorch/utilities/test_compile.py",
        ),
        arguments=("-k", "compile"),
        calls="Fabric and Trainer, which call torch.compile again around their wrappers",
    ),
    "accelerate": Project(
        "huggingface/accelerate",
        "accelerate",
        version="1.14.0",
        packages=("parameterized",),
        paths=("tests", "setup.cfg", "pyproject.toml"),
        tests=(
            "tests/test_compile.py",
            "tests/test_utils.py",
            "tests/test_modeling_utils.py",
            "tests/test_accelerator.py",
        ),
        arguments=("-k", "compile or dynamo"),
        edits=(("tests/test_compile.py", '@skip("Don\'t work with torch 2.8")\n', ""),),
        calls="compile_regions, and the checks that unwrap compiled models",
    ),
    "peft": Project(
        "huggingface/peft",
        "peft",
        version="0.20.0",
        packages=("parameterized", "datasets", "scipy"),
        paths=("tests", "pyproject.toml"),
        tests=("tests/test_initialization.py",),
        arguments=("-o", "addopts=", "-W", "ignore", "-k", "HotSwap"),
        calls="torch.compile(model), whose adapters are then replaced in place",
    ),
    "timm": Project(
        "huggingface/pytorch-image-models",
        "timm",
        version="1.0.28",
        paths=("tests",),
        tests=("tests/test_layers.py", "tests/test_task.py", "tests/test_optim.py"),
        arguments=("-k", "compile"),
        calls="torch.compile of layers, of distillation tasks and of optimizers' steps",
    ),
    "skorch": Project(
        "skorch-dev/skorch",
        "skorch",
        version="1.4.0",
        packages=("flaky",),
        paths=("skorch/tests", "setup.cfg"),
        tests=("skorch/tests/test_net.py",),
        arguments=("-k", "compile"),
        calls="NeuralNet(compile=True), which compiles modules, criteria and what copies of them are",
    ),
}
