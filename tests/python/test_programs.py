"""Programs as people write them run unmodified, and do what they are for. The same files run on MegEngine 1.13; where
the arithmetic is the same, so are the losses below, which it gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import programs_classify
import programs_deploy
import programs_detect
import programs_generate
import programs_vision
import pytest

#: First three losses and the last, of MegEngine 1.13 on x86.
CLASSIFY: dict[str, tuple[float, ...]] = {
    "sgd": (1.1228, 1.1228, 1.0741, 0.7657),
    "adamw": (1.1228, 1.0166, 1.0600, 0.6896),
    "lars": (1.1228, 1.1228, 1.0699, 0.7793),
}


def ends(losses: list[float]) -> list[float]:
    return [*losses[:3], losses[-1]]


# Not lars in a symbolic trace: it decides by the value of a norm, which such a trace does not have.
@pytest.mark.parametrize("rule, traced", [(r, t) for r in CLASSIFY for t in (False, True) if (r, t) != ("lars", True)])
def test_a_classifier_learns_as_on_the_original(rule: str, traced: bool) -> None:
    result = programs_classify.main(rule=rule, traced=traced)
    np.testing.assert_allclose(ends(result["losses"]), CLASSIFY[rule], atol=2e-4)
    assert result["same"] == 0 and result["right"] == 1 and result["rank"] == 0


def test_a_classifier_learns_in_mixed_precision() -> None:
    result = programs_classify.main(mixed=True)
    np.testing.assert_allclose(ends(result["losses"]), CLASSIFY["sgd"], atol=2e-3)


def test_updates_in_place_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    want = programs_classify.main(rule="lars", steps=6)["losses"]
    monkeypatch.setenv("MEGENGINE_INPLACE_UPDATE", "1")
    np.testing.assert_allclose(programs_classify.main(rule="lars", steps=6)["losses"], want, rtol=1e-5)


def test_statistics_of_a_network() -> None:
    assert programs_classify.statistics() == {"params": 453, "flops": 61133, "rows": 12}


def test_a_detector_finds_its_boxes() -> None:
    result = programs_detect.main()
    assert result["losses"][-1] < 0.5 * result["losses"][0]
    assert 1 <= result["kept"] <= 5 and result["overlap"] > 0.4


def test_a_function_of_ones_own() -> None:
    result = programs_detect.straight_through()
    x = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(result["y"], np.sign(x) * np.tanh(x), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(result["dx"], np.tanh(x) + np.sign(x) / np.cosh(x) ** 2, rtol=1e-5, atol=1e-7)


def test_a_decoder_counts_as_on_the_original() -> None:
    result = programs_generate.main()
    np.testing.assert_allclose(ends(result["losses"]), (2.9127, 2.5529, 2.2808, 0.1852), atol=5e-4)
    assert result["right"] == 1


def test_samples_hooks_and_rays() -> None:
    assert abs(programs_generate.spectral()["sigma"] - 1) < 1e-3
    chosen = programs_generate.policy()
    assert chosen["best"] == 2 and chosen["p"] > 0.9
    pixel = programs_generate.rays()["pixel"]
    np.testing.assert_allclose(pixel[0], (0.4936664, 0.5211306, 0.2794415), rtol=1e-5)


def test_graphs_by_hand() -> None:
    result: dict[str, Any] = programs_generate.by_hand()
    assert result["same"] == 0 and result["silu"] < 1e-6 and result["nodes"] == ["x"]


def test_from_float_to_int8_on_lite_as_on_the_original() -> None:
    result = programs_deploy.main()
    want = (2.1160, 3.3110, 2.7928, 2.0214, 0.3929, 0.1030, 0.8514, 0.0011)
    np.testing.assert_allclose(result["losses"], want, atol=2e-4)
    assert result["tuned"][-1] < 1e-3 and result["right"] == 1
    # the traced module, the one read back and the integers give what training simulated; Lite gives the integers
    assert [result[k] for k in ("traced", "loaded", "int8", "lite")] == [0, 0, 0, 0]


def test_a_traced_module_is_flattened_and_shipped() -> None:
    assert programs_deploy.float_traced_module() == {"flat": 0, "lite": 0, "pools": 1, "modules": 7}


def test_a_traced_module_is_quantised() -> None:
    result = programs_deploy.quantised_traced_module()
    assert abs(result["near"] - 0.0692) < 1e-3 and result["int8"] == result["lite"] == 0
    assert len(result["kinds"]) == 6


def test_preprocessing_and_sizes_go_into_the_file() -> None:
    assert programs_deploy.shipped_with_preprocessing() == {"first": 0, "second": 0}


#: What MegEngine 1.13 printed, to four places.
TRADES: dict[str, dict[str, Any]] = {
    "segment": {"losses": [1.6938, 1.5096, 1.413, 1.3226, 1.2472, 1.1867, 1.1261, 1.0634], "right": 0.8516},
    "enlarge": {"losses": [0.315, 0.2487, 0.2254, 0.2167, 0.2098, 0.2024], "psnr": 5.334},
    "flow": {
        "losses": [0.2392, 0.1839, 0.1712, 0.1626, 0.1126, 0.1182],
        "cost": [1, 25, 8, 8],
        "same": 0.0,
        "turned": 0.8888,
    },
    "rivals": {"log": [1.9645, -0.4487, 1.7787, -0.8015, 2.0692, -0.6118, 2.1173, -0.6995, 2.0979, -0.9519]},
    "faces": {"losses": [2.223, 1.7161, 1.0835, 0.592, 0.4137, 0.4133]},
    "video": {"losses": [0.6972, 0.6419, 0.5896, 0.5292], "up": [2, 2, 8, 12, 12]},
    "game": {"losses": [0.2116, 0.1751, 0.1415, 0.0127], "policy": [1, 1, 1, 1, 1]},
    "odds_and_ends": {
        "y": [[2.0, 2.0]] * 4,
        "size": [4, 2],
        "half": [0.5, 0.5],
        "kinds": ["bool", "float32", "int32"],
        "sum": 6.5,
        "seed": 0.0,
    },
}


@pytest.mark.parametrize("trade", TRADES)
def test_other_trades_give_what_the_original_gives(trade: str) -> None:
    result = getattr(programs_vision, trade)()
    assert set(result) == set(TRADES[trade])
    for name, want in TRADES[trade].items():
        if name == "kinds":
            assert result[name] == want
        else:
            np.testing.assert_allclose(result[name], want, atol=1e-3, err_msg=name)


def test_speech_learns() -> None:
    # Not as on the original, whose gradient of an LSTM is wrong on the CPU; the first loss is the same.
    losses = programs_vision.speech()["losses"]
    assert abs(losses[0] - 2.1827) < 1e-3 and losses == sorted(losses, reverse=True)
