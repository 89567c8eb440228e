"""Serve a model with FastAPI: it is compiled at the start, for all sizes of batches, and not in a request."""

# %%
import contextlib

import torch
from fastapi import FastAPI

import burnish

model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.GELU(), torch.nn.Linear(64, 3)).eval()
compiled = burnish.compile(model, dynamic=True)


def answer(rows: list[list[float]]) -> list[int]:
    with torch.inference_mode():
        return compiled(torch.tensor(rows)).argmax(-1).tolist()


# %% From here on a request that would have to be compiled is an error; without this line it would only be slower.
@contextlib.asynccontextmanager
async def warmed_up(app: FastAPI):
    for size in (1, 2, 3, 5, 8):
        answer([[0.0] * 8] * size)
    with burnish.set_stance("eager_on_recompile"):
        yield


app = FastAPI(lifespan=warmed_up)


@app.post("/classify")
def classify(rows: list[list[float]]) -> list[int]:
    return answer(rows)


# %% Run it with `uvicorn serve_fastapi:app`. Here a client in the same process asks.
if __name__ == "__main__":
    from fastapi.testclient import TestClient

    with TestClient(app) as client:
        for size in (1, 4, 7):
            rows = torch.randn(size, 8)
            found = client.post("/classify", json=rows.tolist()).json()
            assert found == model(rows).argmax(-1).tolist(), found
    print("3 requests answered")
