# The image of a release: the program and an empty folder for its data, nothing else. It has
# root certificates and time zones inside, runs as user 65532, and needs no writable root.
# goreleaser puts the program for each platform beside this file:
#
#   docker run -p 8080:8080 -v kickstand:/data --read-only ghcr.io/kickstand-dev/kickstand
#
FROM scratch
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/kickstand /usr/local/bin/kickstand
# An empty folder that belongs to the user, and so does a volume there.
COPY --chown=65532:65532 deploy/image/ /
# Large uploads are spooled to TMPDIR.
ENV PATH=/usr/local/bin KICKSTAND_DATA=/data TMPDIR=/data KICKSTAND_LISTEN=:8080
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/kickstand"]
CMD ["serve"]
