#!/bin/sh
# Creates the secrets of compose.yaml in ./secrets, each only if it is missing. Run it as root:
# the files belong to the user of the image, 65532.
#
#   ./secrets.sh 'smtp://user:password@mail.example.com:587?tls=required'
set -eu
smtp=${1:-}
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
random() { head -c "$1" /dev/urandom | base64 | tr -d '\n=' | tr '/+' '_-'; }
write() { # NAME TEXT
	[ -e "secrets/$1" ] || printf '%s\n' "$2" >"secrets/$1"
}
if [ ! -e secrets/smtp-url ] && [ -z "$smtp" ]; then
	echo "usage: ./secrets.sh SMTP-URL" >&2
	exit 2
fi
write smtp-url "$smtp"
write secret-key "$(head -c 32 /dev/urandom | base64)"
write postgres-password "$(random 24)"
write database-url "postgres://kickstand:$(cat secrets/postgres-password)@postgres/kickstand?sslmode=disable"
if [ ! -e secrets/s3-keys ]; then
	id=$(random 12) secret=$(random 30)
	write s3-keys "export ROOT_ACCESS_KEY_ID=$id ROOT_SECRET_ACCESS_KEY=$secret"
	write blob-url "s3://$id:$secret@attachments?endpoint=http://s3:7070&region=us-east-1"
fi
if [ "$(id -u)" = 0 ]; then
	chown 65532 secrets/database-url secrets/blob-url secrets/secret-key secrets/smtp-url
fi
