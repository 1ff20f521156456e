// Package mailquote finds the text that a mail quotes from the mails before it, so that only the new
// text shows.
//
// Nothing marks a quote reliably: the package knows the separators, header blocks, attributions and
// signatures of common mail programs in some twenty languages, and the elements of their HTML. In
// doubt it leaves the text as it is.
package mailquote

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/kickstand-dev/kickstand/internal/safehtml"

	"golang.org/x/net/html"
)

// replyMarker is the line in our mails above which customers shall write.
const replyMarker = "## Please type your reply above this line ##"

// Strip returns text without the quoted mail at its end and without a signature; the
// result is a prefix of the lines. It returns the whole text if nothing would remain, if the
// mail forwards another, or if it answers between quoted lines, where the quotes belong to the
// answer.
func Strip(text, subject string) string {
	if forwards(subject) {
		return text
	}
	lines := strings.Split(text, "\n")
	end := cutMarker(lines)
	body := lines[:end]
	end = cutBlock(body)
	if slices.ContainsFunc(body[:min(end+1, len(body))], forwardLine) {
		return text
	}
	body = cutDevice(body[:cutSignature(body[:end])])
	if inline(body) {
		return text
	}
	body = cutTrailing(body)
	if attribution := endingAttribution(body); attribution >= 0 {
		body = body[:attribution]
	}
	body = cutTrailing(body)
	body = body[:cutSignature(body)]
	body = cutDevice(cutTrailing(body))
	stripped := strings.TrimRight(strings.Join(body, "\n"), " \t\n")
	if strings.TrimSpace(stripped) == "" || stripped == strings.TrimRight(text, " \t\n") {
		return text
	}
	return stripped
}

var forwardSubject = regexp.MustCompile(`(?i)^\s*((re|aw|sv|antw|odp)\s*:\s*)*(fwd?|wg|tr|rv|enc|i|vb|vs|doorst|vl|pd|fs|переслать|转发|轉寄)\s*:`)

// Strippable reports whether text may end with a quoted mail: it does not forward another, and
// does not answer between quoted lines.
func Strippable(text, subject string) bool {
	lines := strings.Split(text, "\n")
	return !forwards(subject) && !slices.ContainsFunc(lines, forwardLine) && !inline(lines)
}

// forwards reports whether the subject marks a forwarded mail. A reply to a forwarded mail
// counts, too, at the cost of keeping its quote.
func forwards(subject string) bool { return forwardSubject.MatchString(subject) }

var forwardPattern = regexp.MustCompile(`(?i)^[-_=*\s]*(begin )?(forwarded (message|by)|forwarded mail|weitergeleitete nachricht|anfang der weitergeleiteten (nachricht|e-mail)|message (transféré|transmis|réexpédié)|début du message (transféré|réexpédié)|mensaje reenviado|inicio del mensaje reenviado|messaggio inoltrato|inizio messaggio inoltrato|mensagem (encaminhada|reencaminhada)|início da mensagem (encaminhada|reenviada)|doorgestuurd bericht|begin doorgestuurd bericht|vidarebefordrat (meddelande|mejl)|vidarebefordrat brev|videresendt (melding|meddelelse|besked)|wiadomość przekazana|przekazana wiadomość|přeposlaná zpráva|välitetty viesti|пересылаемое сообщение|пересланное сообщение|iletilen (ileti|mesaj)|转发的邮件|転送メッセージ)[-_=*:\s]*$`)

func forwardLine(line string) bool {
	line = strings.TrimSpace(line)
	if line == "" || len(line) > 200 || !isRuleChar(line[0]) && !isRuleChar(line[len(line)-1]) && line[len(line)-1] != ':' {
		return false // spares most lines the pattern
	}
	return forwardPattern.MatchString(line)
}

// isRuleChar matches the characters of separator lines.
func isRuleChar(c byte) bool { return c == '-' || c == '_' || c == '=' || c == '*' }

// cutMarker returns the line of replyMarker, or the number of lines.
func cutMarker(lines []string) int {
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, replyMarker) })
	if i < 0 {
		return len(lines)
	}
	return i
}

var originalPattern = regexp.MustCompile(`(?i)^\s*[-_=*]{2,}\s*(original (message|appointment|mail)|ursprüngliche (nachricht|mail)|originalnachricht|message d['’]origine|message original|message initial|mensaje original|messaggio originale|mensagem original|oorspronkelijk(e)? bericht|ursprungligt meddelande|originalmeddelande|original ?meddelelse|opprinnelig melding|oprindelig (meddelelse|besked)|oryginalna wiadomość|wiadomość oryginalna|původní (zpráva|e-mail)|alkuperäinen viesti|исходное сообщение|оригинальное сообщение|orijinal ileti|özgün ileti|eredeti üzenet|mesaj original|原始邮件|原始郵件|元のメッセージ|원본 메시지)\s*[-_=*]{2,}\s*$`)

// maxSentences bounds the lines examined as the end of an attribution: no mail has as many, and
// each takes time.
const maxSentences = 200

// cutBlock returns the first line of the quoted mail: a separator, a block of its headers, or
// an attribution without quoted lines after it. Without any it returns the number of lines.
func cutBlock(lines []string) int {
	sentences := 0
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, ">") {
			continue
		}
		if len(line) < 200 && isRuleChar(trimmed[0]) && originalPattern.MatchString(line) {
			return i
		}
		if headerKind(trimmed) != 0 && headerBlock(lines[i:]) {
			if i > 0 && isRule(lines[i-1]) {
				i--
			}
			return i
		}
		if sentences < maxSentences && endsAttribution(line) {
			sentences++
			if start, ok := attribution(lines, i); ok && !quotedNext(lines[i+1:]) {
				return start
			}
		}
	}
	return len(lines)
}

// isRule matches the separator line above a quoted mail.
func isRule(line string) bool {
	line = strings.TrimSpace(line)
	return len(line) >= 5 && strings.Trim(line, "_-=*") == ""
}

// quotedNext reports whether the next nonempty line is quoted.
func quotedNext(lines []string) bool {
	for _, l := range lines {
		if strings.TrimSpace(l) != "" {
			return isQuoted(l)
		}
	}
	return true // the end, which is cut later
}

func isQuoted(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), ">") }

// The kinds of header lines, as a bit set.
const (
	headerFrom = 1 << iota
	headerSent
	headerTo
	headerSubject
	headerCc
)

// headerKind returns the header that a line of a quoted mail shows, in the main languages of
// mail programs, or 0.
func headerKind(line string) int {
	i := strings.IndexFunc(line[:min(len(line), 44)], func(r rune) bool { return r == ':' || r == '：' })
	if i < 0 {
		return 0
	}
	switch strings.ToLower(strings.Trim(line[:i], "*_ \t\u00a0")) {
	case "from", "von", "de", "da", "van", "från", "fra", "od", "lähettäjä", "от", "від", "kimden", "feladó", "de la", "από", "差出人", "发件人", "寄件者", "보낸 사람", "מאת", "من":
		return headerFrom
	case "sent", "date", "gesendet", "datum", "envoyé", "envoyé le", "enviado", "enviado el", "enviada em", "fecha", "inviato", "verzonden", "skickat", "sendt", "sendt dato", "dato", "data", "wysłano", "odesláno", "lähetetty", "päivämäärä", "отправлено", "дата", "надіслано", "tarih", "gönderildi", "gönderme tarihi", "elküldve", "dátum", "trimis", "στάλθηκε", "ημερομηνία", "送信日時", "日時", "发送时间", "日期", "寄件日期", "보낸 날짜", "날짜":
		return headerSent
	case "to", "an", "à", "a", "para", "aan", "till", "til", "do", "komu", "vastaanottaja", "кому", "kime", "címzett", "către", "προς", "宛先", "收件人", "收件者", "받는 사람":
		return headerTo
	case "subject", "betreff", "objet", "asunto", "oggetto", "assunto", "onderwerp", "ämne", "emne", "temat", "předmět", "aihe", "тема", "konu", "tárgy", "subiect", "θέμα", "件名", "主题", "主旨", "제목":
		return headerSubject
	case "cc", "bcc", "kopie", "copie", "kopia", "kopi", "копия", "bilgi", "másolat", "抄送", "reply-to", "importance", "priorität":
		return headerCc
	}
	return 0
}

// headerBlock reports whether lines begin with the headers of a mail: three different ones, the
// sender among them, in any order, possibly wrapped.
func headerBlock(lines []string) bool {
	kinds, strange := 0, 0
	for _, line := range lines[:min(len(lines), 10)] {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" {
			break
		}
		if k := headerKind(trimmed); k != 0 {
			kinds |= k
			strange = 0
		} else if strange++; strange > 2 {
			break
		}
	}
	n := 0
	for k := headerFrom; k <= headerSubject; k <<= 1 {
		if kinds&k != 0 {
			n++
		}
	}
	return n >= 3 && kinds&headerFrom != 0
}

// Verbs of an attribution.
var verbPattern = regexp.MustCompile(`(?i)wrote|writes|schrieb|a écrit|écrit|escribió|ha scritto|scrisse|escreveu|schreef|skrev|kirjoitti|napisał|napsal|napísal|написал|пише|написав|yazdı|írta|a scris|έγραψε|đã viết|menulis|写道|寫道|のメール|작성|כתב|كتب`)

// The start of an attribution that wraps over several lines.
var openingPattern = regexp.MustCompile(`^\s*[-*]*\s*(On|Am|Le|El|Il|Em|Op|Den|Dne|Dňa|W dniu|Dnia|På|Na|В|La|Στις|Vào|Pada|(Mon|Tue|Wed|Thu|Fri|Sat|Sun|Mo|Di|Mi|Do|Fr|Sa|So|lun|mar|mer|jeu|ven|sam|dim|пн|вт|ср|чт|пт|сб|вс|pon|wt|śr|czw|pt|sob|niedz|po|út|st|čt|pá|so|ne|ma|ti|ke|to|pe|la|su)[a-zé]*\.?,?|\d{1,4}[-./年])\s?`)

var (
	yearPattern    = regexp.MustCompile(`\b(19|20)\d\d\b|(19|20)\d\d年`)
	clockPattern   = regexp.MustCompile(`\b\d{1,2}[:.h]\d{2}\b`)
	addressEnd     = regexp.MustCompile(`[<(\[]\s*(mailto:)?[^\s<>()\[\]]+@[^\s<>()\[\]]+\s*[>)\]]\s*[:：]\s*[-*]*\s*$`)
	bracketAddress = regexp.MustCompile(`[<(\[]\s*(mailto:)?[^\s<>()\[\]]+@[^\s<>()\[\]]+\s*[>)\]]`)
)

// attribution reports whether an attribution like "On Friday Ana wrote:" ends in line i, and
// where it starts: in the same line if that is complete, else in the nearest line above that
// opens one.
func attribution(lines []string, i int) (start int, ok bool) {
	if !endsAttribution(lines[i]) {
		return 0, false
	}
	text := ""
	for n := range min(4, i+1) {
		line := strings.TrimSpace(lines[i-n])
		if line == "" || strings.HasPrefix(line, ">") || len(line) > maxAttribution {
			break
		}
		text = strings.TrimSpace(line + " " + text)
		when, who, wrote := attributionWords(text)
		if when && (wrote || addressEnd.MatchString(text)) && (n == 0 || openingPattern.MatchString(line)) {
			return i - n, true
		}
		if n == 0 {
			ok = who && wrote
		}
	}
	return i, ok
}

// maxAttribution is the maximum length of such a line.
const maxAttribution = 400

// endsAttribution reports whether an attribution may end in line. It runs on every line, so it
// only checks the end.
func endsAttribution(line string) bool {
	if len(line) > maxAttribution {
		return false
	}
	last := strings.TrimRight(line, " \t*-\u00a0\r")
	for _, end := range []string{":", "：", "wrote", "写道", "寫道", "のメール"} {
		if strings.HasSuffix(last, end) {
			return true
		}
	}
	return false
}

// attributionWords reports whether text names a time, an address, and a verb of writing. Each
// alone may occur in an ordinary sentence.
func attributionWords(text string) (when, who, wrote bool) {
	when = yearPattern.MatchString(text) || clockPattern.MatchString(text)
	return when, bracketAddress.MatchString(text), saysWrote(text)
}

// saysWrote reports whether text ends with a verb of writing, possibly with the writer or the
// time after it, before a colon.
func saysWrote(text string) bool {
	verbs := verbPattern.FindAllStringIndex(text, -1)
	if verbs == nil {
		return false
	}
	tail := strings.Trim(text[verbs[len(verbs)-1][1]:], " *-")
	return tail == "" || len(tail) <= 200 && (strings.HasSuffix(tail, ":") || strings.HasSuffix(tail, "："))
}

// HasQuote reports whether text shows a sign of a quoted mail.
func HasQuote(text string) bool {
	return slices.ContainsFunc(strings.Split(text, "\n"), func(l string) bool {
		return isQuoted(l) || len(l) <= maxAttribution &&
			(bracketAddress.MatchString(l) || saysWrote(l) || strings.Contains(l, "@") && strings.HasSuffix(strings.TrimRight(l, " \t\r"), ":"))
	})
}

// endingAttribution returns the start of an attribution that ends the lines, or -1.
func endingAttribution(lines []string) int {
	if len(lines) == 0 {
		return -1
	}
	if start, ok := attribution(lines, len(lines)-1); ok {
		return start
	}
	return -1
}

// inline reports whether text follows a quoted line.
func inline(lines []string) bool {
	seen := false
	for _, l := range lines {
		switch {
		case isQuoted(l):
			seen = true
		case seen && strings.TrimSpace(l) != "":
			return true
		}
	}
	return false
}

// cutTrailing removes quoted and empty lines from the end.
func cutTrailing(lines []string) []string {
	for len(lines) > 0 {
		l := lines[len(lines)-1]
		if strings.TrimSpace(l) != "" && !isQuoted(l) {
			break
		}
		lines = lines[:len(lines)-1]
	}
	return lines
}

// maxSignature is the maximum number of signature lines after "-- ".
const maxSignature = 15

// cutSignature returns the start of the signature (RFC 3676, 4.3), or the number of lines. Mail
// programs drop the space after the dashes.
func cutSignature(lines []string) int {
	for i := len(lines) - 1; i >= 0 && i >= len(lines)-maxSignature-1; i-- {
		if l := strings.TrimRight(lines[i], " \t\u00a0"); l == "--" || l == "—" {
			return i
		}
	}
	return len(lines)
}

var devicePattern = regexp.MustCompile(`(?i)^\s*((sent|get outlook|envoyé|enviado|inviato|gesendet|verzonden|verstuurd|skickat|sendt|wysłane|odesláno|lähetetty|отправлено|von meinem|gesendet mit|télécharger outlook|obtener outlook)\b.{0,80}\b(iphone|ipad|ipod|android|mobile|mobil|mobiltelefon|handy|smartphone|phone|telefon|téléphone|teléfono|telefono|telemóvel|outlook|samsung|galaxy|huawei|blackberry|yahoo|gmail|mail|device|gerät|móvil|mobiel|cellulare|tablet|gmx|proton)\b.{0,80})\s*$`)

// cutDevice removes the line that phones append to every mail.
func cutDevice(lines []string) []string {
	lines = cutTrailing(lines)
	if n := len(lines); n > 1 && len(lines[n-1]) < 200 && devicePattern.MatchString(lines[n-1]) {
		return cutTrailing(lines[:n-1])
	}
	return lines
}

// CutHTML returns markup up to the first element with quoted mail, and false if there is none
// or text follows it. markup is unsanitized, because sanitizing removes the identifying classes
// and ids.
func CutHTML(markup string) (string, bool) {
	at := 0        // offset of the current token
	cut := -1      // start of the quote
	toEnd := false // the quote extends to the end
	var element string
	depth := 0
	for t := range safehtml.Tokens(markup) {
		start := at
		at += len(t.Raw)
		if cut < 0 {
			if t.Type != html.StartTagToken {
				continue
			}
			var quote bool
			if quote, toEnd = quoteElement(t.Token); quote {
				cut, element, depth = start, t.Data, 1
			}
			if toEnd {
				break
			}
			continue
		}
		switch {
		case depth > 0:
			switch {
			case t.Data != element:
			case t.Type == html.StartTagToken:
				depth++
			case t.Type == html.EndTagToken:
				depth--
			}
		case t.Type == html.TextToken && strings.TrimFunc(t.Data, unicode.IsSpace) != "":
			return "", false
		case t.Type == html.StartTagToken:
			if quote, _ := quoteElement(t.Token); quote { // an attribution, then its quote
				element, depth = t.Data, 1
			}
		}
	}
	if cut < 0 {
		return "", false
	}
	return markup[:cut], true
}

// quoteElement reports whether an element contains the quoted mail, and whether it only marks
// its start.
func quoteElement(t html.Token) (quote, toEnd bool) {
	var class, id, kind, style string
	for _, a := range t.Attr {
		switch a.Key {
		case "class":
			class = a.Val
		case "id":
			id = a.Val
		case "type":
			kind = a.Val
		case "style":
			style = strings.ToLower(strings.ReplaceAll(a.Val, " ", ""))
		}
	}
	switch {
	case id == "divRplyFwdMsg" || id == "appendonsend" || strings.HasSuffix(id, "_divRplyFwdMsg"):
		return true, true
	case t.Data == "div" && strings.Contains(style, "border:none") && strings.Contains(style, "border-top:solid") && strings.Contains(style, "padding:3.0pt0"):
		return true, true
	case t.Data == "blockquote" && strings.EqualFold(kind, "cite"):
		return true, false
	}
	for c := range strings.FieldsSeq(class) {
		switch c {
		case "gmail_quote", "gmail_quote_container", "moz-cite-prefix", "yahoo_quoted", "protonmail_quote", "zmail_extra", "tutanota_quote":
			return true, false
		}
	}
	return false, false
}
