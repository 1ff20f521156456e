import sys
from base64 import b64decode
from http.client import HTTPMessage

from verify import verify_form_a, verify_form_b, verify_standard

for line in sys.stdin:
    form, now, secret, body, *rest = line.rstrip("\n").split("\t")
    headers = HTTPMessage()
    for name, value in zip(rest[::2], rest[1::2]):
        headers[name] = b64decode(value).decode()
    secret, body = b64decode(secret).decode(), b64decode(body)
    if form == "a":
        ok = verify_form_a(headers, body, secret)
    elif form == "b":
        ok = verify_form_b(headers, body, secret)
    else:
        ok = verify_standard(headers, body, secret, int(now))
    print("true" if ok is True else "false" if ok is False else ok)
