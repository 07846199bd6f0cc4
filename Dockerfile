# A broker in a container: docs/operations.md.
#
#   docker build --tag konvene .
#   docker run --publish 9092:9092 --publish 9404:9404 --volume konvene:/var/lib/konvene konvene \
#       serve --host 0.0.0.0 --advertise localhost:9092 --data-dir /var/lib/konvene --metrics-port 9404 \
#       --set konvene.metrics.host=0.0.0.0

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/konvene && /opt/konvene/bin/pip install --no-cache-dir '.[metrics,re2]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /var/lib/konvene konvene \
    && install --directory --owner konvene --group konvene /var/lib/konvene
COPY --from=build /opt/konvene /opt/konvene
ENV PATH=/opt/konvene/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KONVENE_LOG_FORMAT=json
USER konvene
VOLUME /var/lib/konvene
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
# Python alone: the image has no curl. Recovery after a crash takes longer with more data: raise the start period.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from http.client import HTTPConnection as H; c = H('127.0.0.1', 9404, timeout=4); c.request('GET', '/health/ready'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["konvene"]
# The advertised address is the container's: name another one with --advertise for clients outside its network.
CMD ["serve", "--host", "0.0.0.0", "--data-dir", "/var/lib/konvene", "--metrics-port", "9404", "--set", "konvene.metrics.host=0.0.0.0"]
