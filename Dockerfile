# Images of Braid on Debian 12. UNTESTED: `docker build` has never been run. The commands of the first stage were, in a Debian 12
# made by debootstrap, and what `make dist` packed there passes tools/check_dist.py. Of the last stage the commands up to pip were run.
#   docker build -t braid .                                   trains and plans, on pip's torch, which brings CUDA (this image was never run on a GPU)
#   docker build --build-arg PIP_EXTRA_INDEX_URL=INDEX .      the same on libtorch for CPUs: INDEX is that of torch's CPU builds
#   docker build --target planner -t braid-planner .          plans: one static file
FROM debian:12 AS build
WORKDIR /src
COPY tools/packages.txt tools/packages.txt
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates $(cat tools/packages.txt)
ARG PIP_EXTRA_INDEX_URL=
COPY . .
RUN make dist && mv dist/braid-*-linux-$(uname -m) dist/braid

FROM scratch AS planner
COPY --from=build /src/dist/braid /braid
COPY --from=build /src/dist/*.licenses.txt /
ENTRYPOINT ["/braid"]

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/dist/*.whl /tmp/
ARG PIP_EXTRA_INDEX_URL=
RUN python3 -m venv /opt/braid && /opt/braid/bin/pip install --no-cache-dir $(echo /tmp/*.whl)[parquet] && rm /tmp/*.whl
RUN useradd --create-home braid
USER braid
WORKDIR /home/braid
ENV PATH=/opt/braid/bin:$PATH
ENTRYPOINT ["braid"]
