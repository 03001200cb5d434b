"""What does a card achieve of its stated rates, by measured steps?

Every time is a sum of work over rate, so a step is linear in the inverse shares and in the fixed seconds:
    step = W/HBM · 1/weight + K/HBM · 1/attention [ + bytes/PCIe · 1/pcie + copies · latency ] + layers · overhead
Relative residuals, soft_l1 loss, bounds as in a profile; refused where the rows leave a figure open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvprefetch.calibrationrows import Policy, Row, Task
from kvprefetch.checks import InputError
from kvprefetch.configs import ACHIEVED, EFFICIENCIES, GB, LEAST_EFFICIENCY, MICRO, MOST_MICROSECONDS
from kvprefetch.layers import kv_bytes, step_weight_bytes

NOISE = 0.01  # relative residuals beyond this count less than squared: an outlier does not draw the line
ALIKE = 1e-3  # columns whose directions differ by less cannot be told apart by timings
MOST_MISSED = 0.5  # of a step, in the median: beyond it the rows are of something else
MOST_UNCERTAIN = 0.5  # a share whose standard error is more of it than this is not determined
TOGETHER = {  # what would tell two figures apart
    ("weight_efficiency", "attention_efficiency"): "resident rows at two contexts or more, well apart",
    ("weight_efficiency", "layer_overhead_us"): "they share one intercept, so leave one of them out of fit",
    ("weight_efficiency", "copy_latency_us"): "resident rows too",
    ("attention_efficiency", "pcie_efficiency"): "resident rows, or copy rows, too",
    ("pcie_efficiency", "copy_latency_us"): "on-demand or copy rows at two contexts or more, well apart",
}


@dataclass(frozen=True)
class Fitted:
    """One figure of a profile, as fitted."""

    name: str
    value: float  # a share, or microseconds
    error: float | None  # its standard error; None: at its bound, or as many figures as rows
    at_bound: bool


@dataclass(frozen=True)
class Calibration:
    """A fit, row by row."""

    task: Task
    fitted: tuple[Fitted, ...]
    fitted_ms: tuple[float, ...]  # of each row, as measured rows are ordered

    @property
    def residuals_pct(self) -> tuple[float, ...]:
        """Fitted over measured, less one, in per cent."""
        return tuple(100 * (ms / row.step_ms - 1) for ms, row in zip(self.fitted_ms, self.task.rows, strict=True))


class _Solution(NamedTuple):
    """Inverse shares, or seconds, in the order of the columns."""

    unknowns: list[float]
    errors: list[float | None]  # standard ones, given those at their bounds; None at a bound, or with no row to spare
    if_free: list[float | None]  # as if there were no bounds
    at_bound: list[bool]


def calibrate(task: Task) -> Calibration:
    """The figures that `task` asks for, with their standard errors. Raises InputError where its rows leave one open."""
    work = np.array([_work(task, row) for row in task.rows])
    measured = np.array([row.step_ms / 1e3 for row in task.rows])
    columns = _columns(task, work)
    held = np.array([_unknown(name, getattr(task.card.config, name)) for name in ACHIEVED])
    held[columns] = 0
    relative = work[:, columns] / measured[:, None]
    names = [ACHIEVED[k] for k in columns]
    _refuse_alike(relative, names)
    fixed = work @ held / measured - 1  # what is not fitted, and -1 for the measured step itself
    found = _solve(relative, fixed, names)
    for name, unknown, error in zip(names, found.unknowns, found.if_free, strict=True):
        if name in EFFICIENCIES and error is not None and error > MOST_UNCERTAIN * unknown:
            raise InputError(
                f"{name}: known to ± {100 * error / unknown:.0f} % by these rows, which do not determine it; accepted: "
                "more rows, contexts further apart, or less noise"
            )
    fitted_s = measured * (1 + fixed + relative @ np.array(found.unknowns))
    miss = float(np.median(np.abs(fitted_s / measured - 1)))
    if miss > MOST_MISSED:
        raise InputError(
            f"rows: the fit misses them by {100 * miss:.0f} % in the median; accepted: rows of this model and card"
        )
    fitted = tuple(map(_fitted, names, found.unknowns, found.errors, found.at_bound))
    return Calibration(task, fitted, tuple((1e3 * fitted_s).tolist()))


def _work(task: Task, row: Row) -> list[float]:
    """Seconds of each kind of work in a row at the stated rates, in the order of ACHIEVED."""
    model, card = task.model.config, task.card.config
    weights = model.head_bytes + step_weight_bytes(model.layers, row.batch).sum()
    weights = weights if task.weights_gb is None else task.weights_gb * GB
    cached = kv_bytes(model.layers, row.ctx_len, row.batch, task.kv_dtype)
    in_all, copies = float(cached.sum()), int((cached > 0).sum())
    carried = in_all if row.moved_bytes is None else row.moved_bytes
    engine = [weights / (card.hbm_gb_s * GB), in_all / (card.hbm_gb_s * GB)]
    link = [carried / (card.pcie_gb_s * GB), float(copies)]
    if row.policy is Policy.COPY:
        return [0.0, 0.0, *link, 0.0]
    return [*engine, *(link if row.policy is Policy.ONDEMAND else [0.0, 0.0]), float(len(model.layers))]


def _columns(task: Task, work: np.ndarray) -> list[int]:
    """The figures to fit, as places in ACHIEVED."""
    if not task.fit:
        spoken_of = [k for k, name in enumerate(ACHIEVED) if work[:, k].any() and name != "layer_overhead_us"]
        if not spoken_of:
            raise InputError(
                "rows: they speak of no figure; accepted: resident, on-demand or copy rows of a model with a cache"
            )
        return spoken_of
    for name in task.fit:
        if not work[:, ACHIEVED.index(name)].any():
            raise InputError(f"{name}: no row speaks of it; accepted: {_needed(name)}")
    return sorted(ACHIEVED.index(name) for name in task.fit)


def _needed(name: str) -> str:
    of_link = name in ("pcie_efficiency", "copy_latency_us")
    return "on-demand or copy rows" if of_link else "resident or on-demand rows of a model with a cache"


def _refuse_alike(relative: np.ndarray, names: list[str]) -> None:
    """Raises InputError at the first figure whose column the ones before it can make up."""
    unit = relative / np.linalg.norm(relative, axis=0)
    for k in range(1, len(names)):
        made_of, *_ = np.linalg.lstsq(unit[:, :k], unit[:, k], rcond=None)
        if np.linalg.norm(unit[:, :k] @ made_of - unit[:, k]) < ALIKE:
            other = names[int(np.abs(made_of).argmax())]
            accepted = TOGETHER.get((other, names[k]), "rows of other contexts and policies, or fewer figures in fit")
            raise InputError(f"{other} and {names[k]}: these rows cannot tell them apart; accepted: {accepted}")


def _solve(relative: np.ndarray, fixed: np.ndarray, names: list[str]) -> _Solution:
    """The unknowns that leave the smallest relative residuals, within bounds, outliers counting less."""
    try:
        from scipy.optimize import least_squares  # here, because nothing else needs it
    except ModuleNotFoundError:
        raise InputError("calibration needs scipy; install it with: pip install 'kvprefetch[report]'") from None
    scale = np.array([1.0 if name in EFFICIENCIES else MICRO for name in names])
    lowest = np.array([1.0 if name in EFFICIENCIES else 0.0 for name in names])
    highest = np.array([1 / LEAST_EFFICIENCY if name in EFFICIENCIES else MOST_MICROSECONDS for name in names])
    jacobian = relative * scale
    start = np.array([2.0 if name in EFFICIENCIES else 1.0 for name in names])
    found = least_squares(
        lambda x: fixed + jacobian @ x,
        start,
        jac=lambda _: jacobian,
        bounds=(lowest, highest),
        x_scale=1 / np.linalg.norm(jacobian, axis=0),
        loss="soft_l1",
        f_scale=NOISE,
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )
    at_bound = np.isclose(found.x, lowest, rtol=0, atol=1e-6) | np.isclose(found.x, highest)
    errors, if_free = (
        [None if error is None else error * one for error, one in zip(each, scale.tolist(), strict=True)]
        for each in (_standard_errors(jacobian, found.fun, free) for free in (~at_bound, np.full(len(names), True)))
    )
    return _Solution((found.x * scale).tolist(), errors, if_free, at_bound.tolist())


def _standard_errors(jacobian: np.ndarray, residuals: np.ndarray, free: np.ndarray) -> list[float | None]:
    """Of the free unknowns, with the weights that the loss gives each row; None where no row is left to judge by."""
    spare = len(residuals) - int(free.sum())
    if spare < 1 or not free.any():
        return [None] * len(free)
    weights = 1 / np.sqrt(1 + (residuals / NOISE) ** 2)
    inside = jacobian[:, free]
    variance = (weights * residuals**2).sum() / spare
    covariance = variance * np.linalg.inv(inside.T @ (weights[:, None] * inside))
    errors = iter(np.sqrt(np.diag(covariance)).tolist())
    return [next(errors) if is_free else None for is_free in free]


def _unknown(name: str, stated: float | None) -> float:
    """A stated figure as the unknown it stands for: an inverse share, or seconds; neutral where none is stated."""
    if name in EFFICIENCIES:
        return 1 / (stated or 1.0)
    return (stated or 0.0) * MICRO


def _fitted(name: str, unknown: float, error: float | None, at_bound: bool) -> Fitted:
    if name in EFFICIENCIES:  # the share is the inverse, and its error follows
        return Fitted(name, 1 / unknown, None if error is None else error / unknown**2, at_bound)
    return Fitted(name, unknown / MICRO, None if error is None else error / MICRO, at_bound)
