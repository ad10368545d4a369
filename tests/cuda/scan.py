"""The linear recurrence on a GPU against the loop in float64: `python tests/cuda/scan.py`."""

import sys

import torch

from everynet.kernels.recurrence import by_doubling, by_loop, linear_recurrence


def gradients(form, parts, upstream):
    leaves = [x.detach().clone().requires_grad_() for x in parts]
    states = form(*leaves)
    states.backward(upstream.to(states))
    return [states.detach(), *(x.grad for x in leaves)]


def main():
    """Compare values and gradients for shapes that fill chunks and blocks and that do not."""
    failed = 0
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
        for batch, time, dim in ((1, 1, 1), (2, 63, 5), (3, 64, 16), (2, 65, 17), (8, 4096, 256)):
            torch.manual_seed(time)
            a = torch.rand(batch, time, dim, device="cuda").to(dtype)
            b, h0 = torch.randn_like(a), torch.randn_like(a[:, 0])
            upstream = torch.randn_like(a)
            exact = gradients(by_loop, [x.double() for x in (a, b, h0)], upstream)
            for name, form in (
                ("chunks", linear_recurrence),
                ("doubling", lambda *x: by_doubling(*x)[0]),
            ):
                if name == "doubling" and dtype == torch.bfloat16:
                    continue
                found = gradients(form, (a, b, h0), upstream)
                worst = max(
                    ((x.double() - y).abs().max() / y.abs().max()).item()
                    for x, y in zip(found, exact, strict=True)
                )
                failed += not worst <= bound
                print(f"{name} {dtype} {batch}x{time}x{dim}: {worst:.2g} (at most {bound})")
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
