-- Whether an address is invited is asked at each request for a sign-in link.
CREATE INDEX invitations_email ON invitations (email_key);
