# The image of a release. goreleaser puts the program for each platform beside this file:
#
#   docker run -p 8080:8080 -v kickstand:/data ghcr.io/kickstand-dev/kickstand
#
FROM gcr.io/distroless/static-debian12:nonroot
ARG TARGETPLATFORM
# An empty folder that belongs to the user of the image, and so does a volume there.
COPY --from=gcr.io/distroless/static-debian12:nonroot --chown=nonroot:nonroot /tmp /data
COPY $TARGETPLATFORM/kickstand /usr/local/bin/kickstand
ENV KICKSTAND_DATA=/data KICKSTAND_LISTEN=:8080
WORKDIR /data
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["kickstand"]
CMD ["serve"]
