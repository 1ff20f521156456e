package mailquote

import (
	"strings"
	"testing"
)

func TestStrip(t *testing.T) {
	for _, tt := range []struct{ name, subject, text, want string }{
		{"nothing to cut", "", "Hello,\nmy scooter is broken.\n", "Hello,\nmy scooter is broken.\n"},
		{"attribution and quote", "", "Thanks!\n\nOn Fri, Nov 20, 2026 at 10:00 AM Support <s@acme.example> wrote:\n> Hi Ana\n> how are you\n", "Thanks!"},
		{"attribution without marks", "", "Thanks!\n\nOn Fri, Nov 20, 2026 at 10:00 AM Support <s@acme.example> wrote:\n\nHi Ana\nhow are you\n", "Thanks!"},
		{"wrapped over two lines", "", "Thanks!\n\nOn Fri, Nov 20, 2026 at 10:00 AM Acme Support\n<support@acme.example> wrote:\n\n> Hi\n", "Thanks!"},
		{"wrapped over three lines", "", "Thanks!\n\nOn Fri, Nov 20, 2026\nat 10:00 AM Acme Support Team Europe\n<support@acme.example> wrote:\n\n> Hi\n", "Thanks!"},
		{"wrapped below the sender's text", "", "Thanks and\nsee you\nOn Fri, Nov 20, 2026 at 10:00 AM Acme Support\n<support@acme.example> wrote:\n> Hi\n", "Thanks and\nsee you"},
		{"German", "", "Danke\n\nAm 20.11.26 um 10:00 schrieb Acme Support:\n> Hallo\n", "Danke"},
		{"French", "", "Merci\n\nLe ven. 20 nov. 2026 à 10:00, Acme <s@acme.example> a écrit :\n> Bonjour\n", "Merci"},
		{"Spanish", "", "Gracias\n\nEl vie, 20 nov 2026 a las 10:00, Acme (<s@acme.example>) escribió:\n> Hola\n", "Gracias"},
		{"Italian", "", "Grazie\n\nIl giorno ven 20 nov 2026 alle ore 10:00 Acme <s@acme.example> ha scritto:\n> Ciao\n", "Grazie"},
		{"Portuguese", "", "Obrigado\n\nEm sex., 20 de nov. de 2026 às 10:00, Acme <s@acme.example> escreveu:\n> Olá\n", "Obrigado"},
		{"Dutch", "", "Dank\n\nOp vr 20 nov 2026 om 10:00 schreef Acme <s@acme.example>:\n> Hoi\n", "Dank"},
		{"Swedish", "", "Tack\n\nDen fre 20 nov. 2026 kl 10:00 skrev Acme <s@acme.example>:\n> Hej\n", "Tack"},
		{"Danish", "", "Tak\n\nfre. 20. nov. 2026 kl. 10.00 skrev Acme <s@acme.example>:\n> Hej\n", "Tak"},
		{"Finnish", "", "Kiitos\n\npe 20. marrask. 2026 klo 10.00 Acme (s@acme.example) kirjoitti:\n> Hei\n", "Kiitos"},
		{"Polish", "", "Dzięki\n\npt., 20 lis 2026 o 10:00 Acme <s@acme.example> napisał(a):\n> Cześć\n", "Dzięki"},
		{"Czech", "", "Díky\n\npá 20. 11. 2026 v 10:00 odesílatel Acme <s@acme.example> napsal:\n> Ahoj\n", "Díky"},
		{"Russian", "", "Спасибо\n\nпт, 20 нояб. 2026 г. в 10:00, Acme <s@acme.example>:\n> Привет\n", "Спасибо"},
		{"Turkish", "", "Sağol\n\nAcme <s@acme.example>, 20 Kas 2026 Cum, 10:00 tarihinde şunu yazdı:\n> Merhaba\n", "Sağol"},
		{"Hungarian", "", "Köszi\n\nAcme <s@acme.example> ezt írta (időpont: 2026. nov. 20., P, 10:00):\n> Szia\n", "Köszi"},
		{"Japanese", "", "了解\n\n2026年11月20日(金) 10:00 Acme <s@acme.example>:\n> こんにちは\n", "了解"},
		{"Chinese", "", "谢谢\n\nAcme <s@acme.example> 于2026年11月20日周五 10:00写道：\n> 你好\n", "谢谢"},
		{"dashes around", "", "Ok\n\n---- On Fri, 20 Nov 2026 10:00:00 +0100 Acme <s@acme.example> wrote ----\n\nHi\n", "Ok"},
		{"name first", "", "Ok\n\nAcme Support <s@acme.example> wrote on Fri, 20 Nov 2026 at 10:00:\n> Hi\n", "Ok"},

		{"original message", "", "See below\n\n-----Original Message-----\nFrom: Acme\nHi\n", "See below"},
		{"original message in German", "", "Siehe unten\n\n-----Ursprüngliche Nachricht-----\nVon: Acme\n", "Siehe unten"},
		{"header block", "", "Fine.\n\nFrom: Acme Support <s@acme.example>\nSent: Friday, November 20, 2026 10:00\nTo: Ana\nSubject: Lamp\n\nHi Ana\n", "Fine."},
		{"header block under a rule", "", "Fine.\n\n________________________________\nFrom: Acme\nDate: Friday\nTo: Ana\nSubject: Lamp\n\nHi\n", "Fine."},
		{"header block in another order", "", "Fine.\n\nDate: Friday\nSubject: Lamp\nFrom: Acme\n\nHi\n", "Fine."},
		{"header block in bold", "", "Fine.\n\n*From:* Acme\n*Sent:* Friday\n*Subject:* Lamp\n\nHi\n", "Fine."},
		{"header block, wrapped value", "", "Fine.\n\nVon: Acme\nGesendet: Freitag\nAn: Ana, Bob,\n    Carl\nBetreff: Lampe\n\nHallo\n", "Fine."},
		{"header block in Chinese", "", "好\n\n发件人： Acme\n发送时间： 2026\n收件人： Ana\n主题： 灯\n\n你好\n", "好"},
		{"two header-like lines are a list", "", "From: Paris\nTo: Rome\nplease.", "From: Paris\nTo: Rome\nplease."},

		{"trailing quote", "", "Yes.\n\n> Is it red?\n> Really?\n", "Yes."},
		{"answer below the quote", "", "> Is it red?\n\nYes.\n", "> Is it red?\n\nYes.\n"},
		{"answers between quotes", "", "On Fri, 20 Nov 2026 Ana <a@x.example> wrote:\n> Red?\nYes.\n> Big?\nNo.\n> Bye\n", "On Fri, 20 Nov 2026 Ana <a@x.example> wrote:\n> Red?\nYes.\n> Big?\nNo.\n> Bye\n"},
		{"nothing but a quote", "", "On Fri, 20 Nov 2026 Ana <a@x.example> wrote:\n> Red?\n", "On Fri, 20 Nov 2026 Ana <a@x.example> wrote:\n> Red?\n"},
		{"nothing but an original message", "", "-----Original Message-----\nFrom: Acme\n", "-----Original Message-----\nFrom: Acme\n"},

		{"forward by subject", "Fwd: Lamp", "Look.\n\n-----Original Message-----\nFrom: Acme\n", "Look.\n\n-----Original Message-----\nFrom: Acme\n"},
		{"forward by subject in German", "AW: WG: Lampe", "Schau.\n\n> Hallo\n", "Schau.\n\n> Hallo\n"},
		{"forward by its line", "Lamp", "Look.\n\n---------- Forwarded message ---------\nFrom: Acme\nDate: Friday\nSubject: Lamp\n\nHi\n", "Look.\n\n---------- Forwarded message ---------\nFrom: Acme\nDate: Friday\nSubject: Lamp\n\nHi\n"},
		{"forward on a telephone", "Lamp", "Look.\n\nBegin forwarded message:\n\nFrom: Acme\nDate: Friday\nSubject: Lamp\n", "Look.\n\nBegin forwarded message:\n\nFrom: Acme\nDate: Friday\nSubject: Lamp\n"},
		{"a forward inside the quote", "", "Thanks\n\nOn Fri, 20 Nov 2026 Ana <a@x.example> wrote:\n> ---------- Forwarded message ---------\n> Hi\n", "Thanks"},

		{"our marker", "", "Thanks\n\n" + replyMarker + "\n\nAcme: we are on it\n", "Thanks"},
		{"our marker, quoted and attributed", "", "Thanks\n\nOn Fri, 20 Nov 2026 Ana <a@x.example> wrote:\n> " + replyMarker + "\n> we are on it\n", "Thanks"},
		{"signature", "", "Yes.\n-- \nAna Lind\n+46 8 123456\n", "Yes."},
		{"signature above a quote", "", "Yes.\n-- \nAna Lind\n\n> Red?\n", "Yes."},
		{"signature below a quote", "", "Yes.\n\n> Red?\n-- \nAna Lind\n", "Yes."},
		{"dashes that are not a signature", "", "--\nAna\n", "--\nAna\n"},
		{"telephone", "", "Yes.\n\nSent from my iPhone\n", "Yes."},
		{"telephone above a quote", "", "Yes.\n\nSent from my iPhone\n\n> On 20 Nov 2026, at 10:00, Acme <s@acme.example> wrote:\n> \n> Hi\n", "Yes."},
		{"telephone below a quote", "", "Yes.\n\n> Red?\n\nSent from my iPhone\n", "Yes."},
		{"telephone in German", "", "Ja.\n\nVon meinem iPhone gesendet\n", "Ja."},
		{"nothing but a telephone", "", "Sent from my iPhone", "Sent from my iPhone"},

		{"wrote without date or address", "", "My brother wrote:\nit is broken\n", "My brother wrote:\nit is broken\n"},
		{"address, time and colon", "", "Mail me (ana@client.example) before 10:00:\nplease", "Mail me (ana@client.example) before 10:00:\nplease"},
		{"date without a writer", "", "I need it on Friday 20 Nov 2026 at 10:00:\nplease\n", "I need it on Friday 20 Nov 2026 at 10:00:\nplease\n"},
		{"blank", "", " \n\n", " \n\n"},
		{"empty", "", "", ""},
	} {
		if got := Strip(tt.text, tt.subject); got != tt.want {
			t.Errorf("%s: Strip() = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCutHTML(t *testing.T) {
	for _, tt := range []struct{ name, markup, want string }{
		{"none", "<p>Hi</p>", ""},
		{"Gmail", `<div>Yes</div><br><div class="gmail_quote gmail_quote_container"><div class="gmail_attr">On …</div><blockquote class="gmail_quote">Red?</blockquote></div>`, "<div>Yes</div><br>"},
		{"Gmail, inline", `<div class="gmail_quote"><blockquote>Red?</blockquote></div><div>Yes</div>`, ""},
		{"Apple", `Yes<br><blockquote type="cite">Red?<blockquote type="cite">old</blockquote></blockquote>`, "Yes<br>"},
		{"Apple, inline", `<blockquote type="cite">Red?</blockquote>Yes<blockquote type="cite">Big?</blockquote>`, ""},
		{"Thunderbird", `<p>Yes</p><div class="moz-cite-prefix">On Friday:</div><blockquote type="cite">Red?</blockquote>`, "<p>Yes</p>"},
		{"Outlook on the web", `<div>Yes</div><div id="appendonsend"></div><hr><div id="divRplyFwdMsg">From: …</div><div>Red?</div>`, "<div>Yes</div>"},
		{"Outlook", `<p>Yes</p><div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0cm 0cm 0cm"><p>From: …</p></div><p>Red?</p>`, "<p>Yes</p>"},
		{"Yahoo", `<div>Yes</div><div class="yahoo_quoted">Red?</div>`, "<div>Yes</div>"},
		{"Proton", `<div>Yes</div><div class="protonmail_quote">Red?</div>`, "<div>Yes</div>"},
	} {
		got, ok := CutHTML(tt.markup)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: cutHTML() = %q, %t, want %q", tt.name, got, ok, tt.want)
		}
	}
}

func FuzzStrip(f *testing.F) {
	for _, s := range []string{
		"Thanks!\n\nOn Fri, Nov 20, 2026 at 10:00 AM Support\n<s@acme.example> wrote:\n> Hi\n\n> there\n",
		"Fine.\n\n____________\nFrom: Acme\nSent: Friday\nTo: Ana\nSubject: Lamp\n\nHi\n-- \nx\n",
		"> a\nb\n> c\n--\n\nSent from my iPhone",
		"---------- Forwarded message ---------\n-----Original Message-----\n" + replyMarker,
		"20:15 a <a@b>:\n写道：", " \n>\n", "",
	} {
		f.Add(s, "Re: Fwd")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, text, subject string) {
		got := Strip(text, subject)
		if !strings.HasPrefix(text, got) {
			t.Errorf("Strip(%q) = %q, which is not its beginning", text, got)
		}
		if strings.TrimSpace(text) != "" && strings.TrimSpace(got) == "" {
			t.Errorf("Strip(%q) = %q, nothing left", text, got)
		}
		if forwards(subject) && got != text {
			t.Errorf("Strip(%q, %q) = %q, a forward was cut", text, subject, got)
		}
		if again := Strip(got, subject); !strings.HasPrefix(got, again) {
			t.Errorf("Strip twice: %q, then %q", got, again)
		}
	})
}
