package app

import "errors"

// errNoMail names the settings needed to send mail.
var errNoMail = errors.New(`this server has a public base URL and no way to send mail, so that nobody could sign in by link, be invited or reset a password.
Set KICKSTAND_SMTP_URL to your mail server (smtp://user:password@mail.example.com:587; better KICKSTAND_SMTP_URL_FILE, the path of a file that holds it), or KICKSTAND_EMAIL_DELIVERY_API_KEY to the key of your delivery provider.
Set KICKSTAND_MAIL_FROM to an address that it sends for, such as 'Acme Wheels <help@example.com>'.
To serve without mail, set KICKSTAND_ALLOW_NO_MAIL=true: users then sign in with passwords that the operator gives them`)

// CheckServe returns the reason why a server must not start. Commands on records may run
// nevertheless.
func (c Config) CheckServe() error {
	if !c.Loopback() && c.SMTPURL == "" && c.EmailDeliveryAPIKey == "" && !c.AllowNoMail {
		return errNoMail
	}
	return nil
}
