"""CPU time and peak memory of token statistics, forward + backward of both outputs, beside peers.

    python benchmarks/token_stats.py --vocab 32768 151936 --repeats 5
    python benchmarks/token_stats.py --peers trl,verl,liger

Every case runs in a process of its own, on the same tensors (same seed). CPU time is the process's
own (user + system), the median over the repeats. Peak extra memory is the high-water mark of
resident memory during the first full call, less the resident memory before it, when the inputs are
there: Linux resets that mark through /proc/self/clear_refs, so it is exact to a page and not
sampled. A call on a few rows comes first, so that code and thread pools are loaded.

Peers are used where they are installed: run the script from an environment that has them.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from isentrope.token_stats.logits import token_stats, token_stats_from_hidden

WIDTH = 896
PEER_PACKAGES = {"trl": "trl", "verl": "verl", "liger": "liger-kernel"}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The tensors of one case; `logits` or the pair `hidden`, `weight` is the differentiated leaf."""

    logits: Tensor
    hidden: Tensor
    weight: Tensor
    labels: Tensor
    of_logprob: Tensor
    of_entropy: Tensor

    @classmethod
    def make(cls, tokens: int, vocab: int, *, from_hidden: bool) -> "Inputs":
        torch.manual_seed(0)
        labels = torch.randint(0, vocab, (tokens,))
        of_logprob, of_entropy = torch.randn(2, tokens).unbind()
        empty = torch.empty(0)
        if from_hidden:
            hidden = torch.randn(tokens, WIDTH).requires_grad_()
            weight = torch.randn(vocab, WIDTH).mul_(2 / WIDTH**0.5).requires_grad_()
            return cls(empty, hidden, weight, labels, of_logprob, of_entropy)
        logits = torch.randn(tokens, vocab).mul_(2).requires_grad_()
        return cls(logits, empty, empty, labels, of_logprob, of_entropy)

    def backward(self, logprob: Tensor, entropy: Tensor) -> None:
        gradients = self.of_logprob.view_as(logprob), self.of_entropy.view_as(entropy)
        torch.autograd.backward((logprob, entropy), gradients)

    def clear(self) -> None:
        self.logits.grad = self.hidden.grad = self.weight.grad = None


def naive(x: Inputs) -> None:
    logprob = x.logits.log_softmax(-1).gather(-1, x.labels[:, None])[:, 0]
    logprob.backward(x.of_logprob)


@torch.no_grad()
def naive_forward(x: Inputs) -> None:
    x.logits.log_softmax(-1).gather(-1, x.labels[:, None])


def ours(x: Inputs) -> None:
    x.backward(*token_stats(x.logits, x.labels)[:2])


def ours_logprob_gradient(x: Inputs) -> None:
    token_stats(x.logits, x.labels).logprob.backward(x.of_logprob)


@torch.no_grad()
def ours_forward(x: Inputs) -> None:
    token_stats(x.logits, x.labels)


def trl_logits(x: Inputs) -> None:
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    x.backward(selective_log_softmax(x.logits, x.labels), entropy_from_logits(x.logits))


def verl_logits(x: Inputs) -> None:
    """In its padded layout (8, tokens / 8, V), which is several times faster than its packed one."""
    from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits

    logits, labels = x.logits.view(8, -1, x.logits.shape[-1]), x.labels.view(8, -1)
    x.backward(logprobs_from_logits(logits, labels), entropy_from_logits(logits))


PRODUCT_BUFFERS: dict[str, Tensor] = {}


@torch.no_grad()
def products(x: Inputs) -> None:
    """The four matrix products alone, into buffers that are already there."""
    buffers = PRODUCT_BUFFERS
    logits = buffers.get("logits")
    if logits is None or logits.shape != (x.hidden.shape[0], x.weight.shape[0]):
        logits = buffers["logits"] = torch.randn(x.hidden.shape[0], x.weight.shape[0])
        buffers["hidden"], buffers["weight"] = x.hidden.clone(), x.weight.clone()
    torch.mm(x.hidden, x.weight.T, out=logits)
    torch.mm(x.hidden, x.weight.T, out=logits)
    torch.mm(logits, x.weight, out=buffers["hidden"])
    torch.mm(logits.T, x.hidden, out=buffers["weight"])


def ours_hidden(x: Inputs) -> None:
    x.backward(*token_stats_from_hidden(x.hidden, x.weight, x.labels)[:2])


def trl_hidden(x: Inputs) -> None:
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    logprob, entropy, *_ = ChunkedLogProbFunction.apply(
        x.hidden, x.weight, None, x.labels, 1.0, 4096, None, 1.0, ("entropy",)
    )
    x.backward(logprob, entropy)


def verl_hidden(x: Inputs) -> None:
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    logprob, entropy = FusedLinearForPPO()(x.hidden[None], x.weight, x.labels[None])
    x.backward(logprob, entropy)


def liger_hidden(x: Inputs) -> None:
    """The log-probability alone, inside its GRPO loss: it has no entropy."""
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    loss = LigerFusedLinearGRPOLoss(beta=0.0, compiled=False, use_ref_model=False)
    hidden, labels = x.hidden.view(8, -1, WIDTH), x.labels.view(8, -1)
    loss(hidden, x.weight, labels, torch.ones_like(labels), x.of_logprob[:8])[0].backward()


CASES: dict[str, dict[str, Callable[[Inputs], None]]] = {
    "logits": {
        "log_softmax + gather": naive,
        "isentrope": ours,
        "isentrope, entropy logged only": ours_logprob_gradient,
        "trl": trl_logits,
        "verl": verl_logits,
        "log_softmax + gather, forward": naive_forward,
        "isentrope, forward": ours_forward,
    },
    "hidden": {
        "4 matrix products": products,
        "isentrope": ours_hidden,
        "trl": trl_hidden,
        "verl": verl_hidden,
        "liger": liger_hidden,
    },
}


def measure(case: Callable[[Inputs], None], x: Inputs, small: Inputs, repeats: int) -> None:
    """Prints {"cpu_s": [...], "peak_bytes": n} of one case."""
    case(small)
    PRODUCT_BUFFERS.clear()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    case(x)
    peak = _status("VmHWM") - before
    seconds: list[float] = []
    for _ in range(repeats):
        x.clear()
        start = time.process_time()
        case(x)
        seconds.append(time.process_time() - start)
    print(json.dumps({"cpu_s": seconds, "peak_bytes": peak}))


def _status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field} in /proc/self/status")


def compare(options: argparse.Namespace, source: str, vocab: int) -> None:
    """Runs every case of `source` in its own process and prints the table."""
    logits_mib = options.tokens * vocab * 4 / 2**20
    print(f"\nfrom {source}, {options.tokens} tokens, V = {vocab:,}, logits {logits_mib:.0f} MiB")
    print("| | CPU s, median (lowest) | times the first | peak extra MiB | times the logits |")
    print("|-|-|-|-|-|")
    first = None
    for name in CASES[source]:
        if name in PEER_PACKAGES and name not in options.peers:
            continue
        arguments = (source, name, str(vocab), str(options.tokens), str(options.repeats))
        command = [sys.executable, __file__, "--child", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {name} | failed: {done.stderr.strip().splitlines()[-1:]} |")
            continue
        result = json.loads(done.stdout.strip().splitlines()[-1])
        median = statistics.median(result["cpu_s"])
        first = first or median
        peak_mib = result["peak_bytes"] / 2**20
        print(
            f"| {name} | {median:.2f} ({min(result['cpu_s']):.2f}) | {median / first:.2f} "
            f"| {peak_mib:.0f} | {peak_mib / logits_mib:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vocab", type=int, nargs="+", default=[32_768, 151_936])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--source", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--peers", type=lambda text: text.split(","), default=[])
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        source, name, vocab, tokens, repeats = options.child
        from_hidden = source == "hidden"
        x = Inputs.make(int(tokens), int(vocab), from_hidden=from_hidden)
        small = Inputs.make(8, 64, from_hidden=from_hidden)
        measure(CASES[source][name], x, small, int(repeats))
        return
    versions = {name: version(PEER_PACKAGES[name]) for name in options.peers}
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads, {os.cpu_count()} cores, {versions}")
    for vocab in options.vocab:
        for source in options.source:
            compare(options, source, vocab)


if __name__ == "__main__":
    main()
