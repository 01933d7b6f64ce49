"""Refinement of posed images: starts, comparison by held-out observations, and the result for each image."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.model import ColmapModel
from asker.applications.outcome import Say, silent
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.correspondences.tracks import Tracks, join
from asker.applications.posed.image_table import ImageTable, Part, image_table
from asker.applications.posed.intrinsics import REFINES, IntrinsicsChoice, choose_intrinsics, with_camera_model
from asker.applications.posed.options import IntrinsicsMode
from asker.applications.posed.parts import aligned, determined_parts, joined
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.prior import solve_with_prior
from asker.applications.posed.scene import epipolar_distances
from asker.applications.posed.second_start import AveragedRotations, averaged_rotations
from asker.applications.posed.settle import INLIER_RADIUS, Solution, locally_solved, rejoined, settle, solved, verified
from asker.applications.posed.validation import LEVEL, HeldOut, Verdict, compare, hold_out
from asker.problem.variables import ProblemError


@dataclass(frozen=True, eq=False)
class PosedOutcome:
    """The result of `refine`."""

    start: PosedImages
    refined: PosedImages
    """The images with refined poses and intrinsics; those of `undetermined` and, if it is refused, of all images are
    unchanged."""
    model: ColmapModel
    """The refined COLMAP model without outliers, also if the result is refused."""
    accepted: bool
    """True if held-out observations are predicted better than by the start."""
    reason: str
    """The reason in words."""
    verdict: Verdict
    images: ImageTable
    parts: tuple[Part, ...]
    """The sets of images with determined relative poses, the largest first."""
    undetermined: np.ndarray
    """The indices of the images that the data do not determine, which keep their poses."""
    matches: Matches
    record: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Candidate:
    """The solution from one start."""

    name: str
    solution: Solution
    errors: np.ndarray
    """Prediction errors of the held-out observations in pixels."""


def refine(
    posed: PosedImages,
    matches: Matches,
    *,
    intrinsics: IntrinsicsMode = "auto",
    seed: int = 0,
    say: Say = silent,
    **limits: Any,
) -> PosedOutcome:
    """Refine approximate poses of images by robust bundle adjustment of verified matches.

    Parameters
    ----------
    posed
        Images with approximate poses and intrinsics.
    matches
        Features and verified matches of these images.
    intrinsics
        "fixed"; "shared" for one focal length of all images of a size; "focal" for the focal lengths of the given
        cameras; "all" for their distortions, too; "auto" for "fixed", or "focal" if the data require it.
    seed
        The seed of the choice of held-out observations.
    say
        Receives progress messages.
    **limits
        Arguments of `asker.solve`: time_limit, threads, engine, ...

    Returns
    -------
    PosedOutcome
        The refined images, the model and the comparison with the start.

    Raises
    ------
    asker.ProblemError
        If there are fewer than two images, or the matches give no track.
    """
    begin = perf_counter()
    _check(posed, matches)
    start = with_camera_model(posed, intrinsics)
    n_given, matches = len(matches.features), verified(start, matches)
    held_out = hold_out(join(matches), seed)
    training = matches.taken(held_out.training(matches))
    tracks = join(training)
    if not tracks.n:
        raise ProblemError(f"the {len(matches.features)} matches give no track")
    candidates = _candidates(start, matches, training, tracks, held_out, intrinsics, say, limits)
    best = _best(candidates)
    choice = choose_intrinsics(best.solution, held_out, matches, intrinsics, **limits)
    data = Data(posed, start, matches, training, tracks, held_out)
    say("all observations")
    final = _final(data, choice, limits)
    if _needs_prior(final):
        say("with the given poses as a prior")
        final = _final_with_prior(data, final, choice, limits)
    accepted, reason = judged(final.verdict, final.images)
    record = {
        "n_matches": n_given,
        "n_unverified": n_given - len(matches.features),
        "start": best.name,
        "starts": {one.name: starts_record(one) for one in candidates},
        "intrinsics": {"requested": intrinsics, "free": choice.refine} | intrinsics_record(choice),
        "rounds": best.solution.n_rounds,
        "accepted": accepted,
        "reason": reason,
        "seconds": perf_counter() - begin,
        "version": asker.__version__,
    }
    record |= final_record(final, matches)
    undetermined, shown = np.flatnonzero(~final.images.determined), final.refined if accepted else posed
    shared = final.model, accepted, reason, final.verdict, final.images, tuple(final.parts), undetermined
    return PosedOutcome(posed, shown, *shared, matches, record)


@dataclass(frozen=True, eq=False)
class Data:
    """The given poses and the matches, with held-out observations."""

    given: PosedImages
    start: PosedImages
    """The same with the cameras of the requested mode."""
    matches: Matches
    training: Matches
    """The matches without held-out features."""
    tracks: Tracks
    """The tracks of the training matches."""
    held_out: HeldOut

    def verdict(self, solution: PosedImages, limit: float) -> Verdict:
        """Return the comparison of a solution without held-out observations with the given poses."""
        before, after = (self.held_out.norms(one, self.matches) for one in (self.given, solution))
        return compare(before, after, limit)


@dataclass(frozen=True, eq=False)
class Final:
    """The solution with all observations."""

    parts: list[Part]
    refined: PosedImages
    model: ColmapModel
    images: ImageTable
    verdict: Verdict


def _final(data: Data, choice: IntrinsicsChoice, limits: dict[str, Any]) -> Final:
    """Return the solution with all observations, without a prior."""
    solution, start, matches = choice.solution, data.start, data.matches
    verdict = data.verdict(solution.posed, solution.limit)
    tracks = rejoined(solution, matches)
    whole = solved(solution.posed, matches, tracks, choice.refine, **limits)
    sigma = solution.limit / INLIER_RADIUS
    local = locally_solved(solution.posed, matches, tracks, sigma, choice.refine, **limits)
    if local.n_inliers > whole.n_inliers + np.sqrt(whole.n_inliers):  # the search has lost an image
        whole = local
    parts = determined_parts(start, matches, whole, choice.refine, **limits)
    refined, model = joined(start, matches, parts)
    return Final(parts, refined, model, image_table(start, refined, parts), verdict)


def _needs_prior(final: Final) -> bool:
    """Return True if the data leave images or directions open: weak images, separate sets or undetermined images."""
    images = final.images
    return len(final.parts) != 1 or bool(images.is_weak.any() or not images.determined.all())


def _final_with_prior(data: Data, without: Final, choice: IntrinsicsChoice, limits: dict[str, Any]) -> Final:
    """Return the solution with the given poses as a prior, from these poses and from the solutions without a prior."""
    sigma = choice.solution.limit / INLIER_RADIUS
    everything, n = np.arange(len(data.matches.xys)), len(data.start)
    trained_without = aligned(data.start, data.training, everything, np.arange(n), choice.solution).posed
    starts = [data.start, without.refined, trained_without]
    settings: Any = {"refine": choice.refine, **limits}
    trained = solve_with_prior(data.start, starts, data.training, data.tracks, sigma, **settings)
    verdict = data.verdict(trained.fit.posed, trained.fit.limit)
    tracks, again = rejoined(trained.fit, data.matches), [trained.fit.posed]
    whole = solve_with_prior(data.start, again, data.matches, tracks, sigma, scales=trained.scales, **settings)
    seen = np.bincount(data.matches.of_feature[whole.fit.tracks.feature[whole.fit.inliers]], minlength=n) > 0
    poses = np.where(seen[:, None, None], whole.fit.posed.poses, data.start.poses)  # exactly those given
    posed = replace(whole.fit.posed, poses=poses)
    part = Part(np.arange(n), everything, posed, whole.xyz, whole.errors, whole.fit, data.matches)
    refined, model = joined(data.start, data.matches, [part])
    prior = np.sqrt(3) * whole.scales.centre, float(np.degrees(np.sqrt(3) * whole.scales.rotation))
    images = image_table(data.start, refined, [part], prior)
    return Final([part], refined, model, replace(images, determined=seen), verdict)


def _check(posed: PosedImages, matches: Matches) -> None:
    if len(posed) < 2:
        raise ProblemError(f"poses of at least two images are needed, got {len(posed)}")
    if len(matches.starts) != len(posed) + 1:
        raise ProblemError(f"matches of {len(matches.starts) - 1} images were given for {len(posed)} images")
    if not len(matches.features):
        raise ProblemError("there are no matches between the images")


def _candidates(
    start: PosedImages,
    matches: Matches,
    training: Matches,
    tracks: Tracks,
    held_out: HeldOut,
    intrinsics: IntrinsicsMode,
    say: Say,
    limits: dict[str, Any],
) -> list[Candidate]:
    """Return the solutions from the given poses and from averaged rotations, as far as both are needed.

    The averaged rotations come first if the given ones explain less than half of the pairs that they explain.  The
    second start is omitted if the first solution agrees with all pairs that the averaged rotations explain.
    """
    say("relative poses")
    averaged = averaged_rotations(start, matches)
    names = ["given poses"]
    if averaged is not None:
        names = ["given poses", "averaged rotations"]
        if averaged.share_explained(start.poses[:, :, :3]) < 0.5:
            names.reverse()
    out: list[Candidate] = []
    for name in names:
        say(f"bundle adjustment from {name}")
        begin = start
        try:
            if name == "averaged rotations" and averaged is not None:
                begin = solved(averaged.start(start), training, tracks, hold=("rotations",), **limits).posed
            solution = settle(begin, training, tracks, say, REFINES[intrinsics], **limits)
        except ValueError:  # no track can be triangulated with these poses
            if name == names[-1] and not out:
                raise
            continue
        out.append(Candidate(name, solution, held_out.norms(solution.posed, matches)))
        if averaged is None or not contradicts(averaged, solution, matches):
            break
    return out


def contradicts(averaged: AveragedRotations, solution: Solution, matches: Matches) -> bool:
    """Return True if the solution is wrong about a pair that the averaged rotations explain.

    It is wrong if the relative rotation and most of the matches of the pair disagree with it.
    """
    pairs = averaged.pairs[averaged.unexplained(solution.posed.poses[:, :, :3])]
    near = epipolar_distances(solution.posed, matches, *matches.features.T) <= solution.limit
    agree = np.bincount(matches.of_match, near, minlength=len(matches.pairs)) / np.maximum(matches.counts, 1)
    return bool((agree[pairs] < 0.5).any())


def _best(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that predicts most held-out observations within its inlier limit, then with most inliers."""

    def quality(one: Candidate) -> tuple[int, int]:
        return int((one.errors <= one.solution.limit).sum()), one.solution.n_inliers

    return max(candidates, key=quality)


def judged(verdict: Verdict, images: ImageTable) -> tuple[bool, str]:
    """Return whether a result is accepted, and the reason in words."""
    share = f"{verdict.n_better} of {verdict.n} held-out observations are predicted better than by the start"
    medians = f"median error {verdict.before:.3g} -> {verdict.after:.3g} px"
    if not images.determined.any():
        return False, "the matches determine the pose of no image"
    if not verdict.n:
        return False, "neither the start nor the result predicts a held-out observation"
    if not verdict.is_better:
        return False, f"only {share} ({medians}): no better than by chance, at a level of {100 * LEVEL:g} %"
    if images.is_worse:
        centre, rotation = images.start_errors
        of = images.determined
        errors = f"{np.median(images.centre_error[of]):.2g} and {np.median(images.rotation_error[of]):.2g}°"
        given = f"those of the given poses are estimated as {centre:.2g} and {rotation:.2g}°"
        return False, f"{share}, but the standard errors of centres and rotations are {errors}; {given}"
    return True, f"{share} ({medians})"


def starts_record(one: Candidate) -> dict[str, Any]:
    """Return the entries of `report.json` about one start."""
    limit = one.solution.limit
    return {
        "held_out_within_limit": int((one.errors <= limit).sum()),
        "inliers": one.solution.n_inliers,
        "inlier_limit": limit,
        "rounds": one.solution.n_rounds,
    }


def intrinsics_record(choice: IntrinsicsChoice) -> dict[str, Any]:
    """Return the entries of `report.json` about the choice of free intrinsics."""
    return {} if choice.verdict is None else {"free_focal_lengths": asdict(choice.verdict)}


def final_record(final: Final, matches: Matches) -> dict[str, Any]:
    """Return the entries of `report.json` about the solution with all observations."""
    images, fits = final.images, [part.solution for part in final.parts]
    inliers = np.concatenate([np.zeros(0, bool), *(fit.inliers for fit in fits)])

    def names(mask: np.ndarray) -> list[str]:
        return [images.names[k] for k in np.flatnonzero(mask)]

    return {
        "n_images": len(images.names),
        "n_pairs": int((matches.counts > 0).sum()),
        "n_points": len(final.model.points),
        "n_observations": final.model.n_observations,
        "sets": [len(part.images) for part in final.parts],
        "sigma": [fit.limit / INLIER_RADIUS for fit in fits],
        "inlier_limit": max((fit.limit for fit in fits), default=0.0),
        "inlier_ratio": float(inliers.mean()) if len(inliers) else 0.0,
        "held_out": asdict(final.verdict),
        "has_prior": images.prior is not None,
        "start_errors": dict(zip(("centre", "rotation_degrees"), images.start_errors, strict=True)),
        "weak": names(images.is_weak),
        "undetermined": names(~images.determined),
        "images": images.record(),
    }
