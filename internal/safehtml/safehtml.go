// Package safehtml sanitizes untrusted HTML and converts it to text.
//
// One policy applies to mail and API input alike. The result of [Sanitizer.Sanitize] executes
// nothing, loads nothing, and cannot close an element of the surrounding page.
package safehtml

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Sanitizer applies the policy. It is safe for concurrent use.
type Sanitizer struct{ policy *bluemonday.Policy }

// NewSanitizer returns a sanitizer. It is expensive; reuse it.
func NewSanitizer() *Sanitizer { return &Sanitizer{newPolicy()} }

// newPolicy allows the formatting of mail and nothing that executes, loads or hides.
func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements(
		"a", "abbr", "address", "b", "bdi", "bdo", "big", "blockquote", "br", "caption", "center", "cite", "code",
		"col", "colgroup", "dd", "del", "dfn", "div", "dl", "dt", "em", "figcaption", "figure", "font", "footer",
		"h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "i", "img", "ins", "kbd", "li", "main", "mark", "ol",
		"p", "pre", "q", "s", "samp", "section", "small", "span", "strike", "strong", "sub", "sup", "table",
		"tbody", "td", "tfoot", "th", "thead", "time", "tr", "tt", "u", "ul", "var", "wbr",
	)
	p.SkipElementsContent("title", "select", "textarea", "svg", "math")
	p.RequireParseableURLs(true)
	p.AllowURLSchemes("http", "https", "mailto", "tel", "cid")
	p.AllowAttrs("href").OnElements("a")
	p.AllowAttrs("src", "alt").OnElements("img")
	p.AllowAttrs("title", "dir", "lang").Globally()
	p.AllowAttrs("width", "height").Matching(extent).OnElements("img", "table", "td", "th", "col", "colgroup", "hr")
	p.AllowAttrs("valign").Matching(bluemonday.CellVerticalAlign).OnElements("table", "td", "th", "tr", "tbody", "thead")
	p.AllowAttrs("align").Matching(bluemonday.CellAlign).OnElements("table", "td", "th", "tr", "tbody", "thead", "p", "div", "img", "h1", "h2", "h3", "h4", "h5", "h6")
	p.AllowAttrs("colspan", "rowspan", "border", "cellpadding", "cellspacing", "start").Matching(small).OnElements("table", "td", "th", "ol")
	p.AllowAttrs("bgcolor").Matching(colour).OnElements("table", "tbody", "thead", "tfoot", "tr", "td", "th")
	p.AllowAttrs("color").Matching(colour).OnElements("font")
	p.AllowAttrs("size").Matching(fontSize).OnElements("font")
	for properties, values := range styles {
		p.AllowStyles(strings.Fields(properties)...).Matching(values).Globally()
	}
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
}

// Sanitize returns markup safe to embed in a page: without scripts, forms, event handlers and
// special links, and with balanced elements. Images in attachments keep src="cid:<ContentID>";
// the URL of any other image moves to the attribute data-remote-src, so that the sender cannot
// track reading.
func (s *Sanitizer) Sanitize(markup string) string {
	markup = plainStyles(Clean(markup))
	return strings.TrimSpace(balanced(localImages(Clean(s.policy.Sanitize(markup)))))
}

// maxStyle bounds a style attribute in bytes: parsing takes the policy quadratic time.
const maxStyle = 1 << 10

// plainStyles removes style attributes that are too long, or have escapes or comments, which
// the policy cannot parse.
func plainStyles(markup string) string {
	var b strings.Builder
	for t := range Tokens(markup) {
		n := len(t.Attr)
		t.Attr = slices.DeleteFunc(t.Attr, func(a html.Attribute) bool {
			return a.Key == "style" && (len(a.Val) > maxStyle || strings.Contains(a.Val, `\`) || strings.Contains(a.Val, "/*"))
		})
		if len(t.Attr) < n {
			b.WriteString(t.Token.String())
		} else {
			b.WriteString(t.Raw)
		}
	}
	return b.String()
}

// localImages rewrites the images of sanitized markup.
func localImages(markup string) string {
	var b strings.Builder
	for t := range Tokens(markup) {
		if t.DataAtom == atom.Img && t.Type != html.EndTagToken {
			for i, a := range t.Attr {
				if a.Key != "src" {
					continue
				}
				if id, ok := cid(a.Val); ok {
					t.Attr[i].Val = "cid:" + id
				} else {
					t.Attr[i].Key = remoteAttr
				}
			}
			b.WriteString(t.Token.String())
			continue
		}
		b.WriteString(t.Raw)
	}
	return b.String()
}

// maxClimb bounds how far up an end tag is matched, and so the work for deeply nested markup.
const maxClimb = 1000

// balanced closes unclosed elements of sanitized markup and drops unmatched end tags, which
// would act on the surrounding page.
func balanced(markup string) string {
	var b strings.Builder
	var open []atom.Atom
	closeDown := func(to int) { // closes all elements above to
		for i := len(open) - 1; i >= to; i-- {
			if !endsByItself(open[i]) {
				b.WriteString("</" + open[i].String() + ">")
			}
		}
		open = open[:to]
	}
	for t := range Tokens(markup) {
		switch {
		case t.Type == html.EndTagToken:
			if i := opener(open, t.DataAtom); i >= 0 {
				closeDown(i + 1)
				open = open[:i]
				b.WriteString(t.Raw)
			}
			continue
		case t.Type == html.StartTagToken || t.Type == html.SelfClosingTagToken: // which HTML ignores
			if !empty(t.DataAtom) {
				if n := len(open); n == 0 || open[n-1] != t.DataAtom || !endsByItself(t.DataAtom) {
					open = append(open, t.DataAtom)
				}
			}
		}
		b.WriteString(t.Raw)
	}
	closeDown(0)
	return b.String()
}

// endsByItself reports whether an element's end tag is optional.
func endsByItself(a atom.Atom) bool {
	switch a {
	case atom.P, atom.Li, atom.Dd, atom.Dt, atom.Tr, atom.Td, atom.Th, atom.Tbody, atom.Thead, atom.Tfoot, atom.Colgroup, atom.Caption:
		return true
	}
	return false
}

// opener returns the index of the open element that an end tag closes, or -1. An end tag never
// closes an element outside the current table cell, nor a part of a table outside the current
// table.
func opener(open []atom.Atom, end atom.Atom) int {
	part := false
	switch end {
	case atom.Table, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th, atom.Caption, atom.Colgroup:
		part = true
	}
	for i := len(open) - 1; i >= max(0, len(open)-maxClimb); i-- {
		switch a := open[i]; {
		case a == end:
			return i
		case a == atom.Table, !part && (a == atom.Td || a == atom.Th || a == atom.Caption):
			return -1
		}
	}
	return -1
}

// maxID bounds a content id in bytes.
const maxID = 1000

// cid parses a link to another part of the mail (RFC 2392).
func cid(link string) (id string, ok bool) {
	if len(link) < 4 || !strings.EqualFold(link[:4], "cid:") {
		return "", false
	}
	id = link[4:]
	if plain, err := url.PathUnescape(id); err == nil {
		id = plain
	}
	id = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(id, "\uFFFD")))
	return Clip(strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">"), maxID), true
}

// Images returns the content ids in sanitized markup.
func Images(markup string) []string {
	var list []string
	for t := range Tokens(markup) {
		if t.DataAtom != atom.Img {
			continue
		}
		for _, a := range t.Attr {
			if id, ok := cid(a.Val); ok && a.Key == "src" {
				list = append(list, id)
			}
		}
	}
	return list
}

// remoteAttr is the attribute with the URL of an image that is not loaded.
const remoteAttr = "data-remote-src"

// RemoteImages returns the distinct URLs of the images that sanitized markup does not load.
func RemoteImages(markup string) []string {
	var list []string
	RewriteImages(markup, func(address string) string {
		if !slices.Contains(list, address) {
			list = append(list, address)
		}
		return ""
	})
	return list
}

// RewriteImages returns sanitized markup that loads images from the URL that local returns for
// theirs. An empty result leaves an image unloaded.
func RewriteImages(markup string, local func(address string) string) string {
	if !strings.Contains(markup, remoteAttr) {
		return markup
	}
	var b strings.Builder
	for t := range Tokens(markup) {
		i := slices.IndexFunc(t.Attr, func(a html.Attribute) bool { return a.Key == remoteAttr })
		if t.DataAtom == atom.Img && i >= 0 {
			if to := local(t.Attr[i].Val); to != "" {
				t.Attr[i] = html.Attribute{Key: "src", Val: to}
				b.WriteString(t.Token.String())
				continue
			}
		}
		b.WriteString(t.Raw)
	}
	return b.String()
}

// SetsColors reports whether sanitized markup sets colours, and should then be shown on the white
// background that its sender assumed.
func SetsColors(markup string) bool { return coloured.MatchString(markup) }

var coloured = regexp.MustCompile(`(?i)(?:color|background)\s*[:=]`)

// Token is a token with its source text.
type Token struct {
	html.Token
	Raw string
}

// Tokens yields the tokens of markup. Unlike a parser, it builds no tree, so deep markup needs
// no memory.
func Tokens(markup string) func(yield func(Token) bool) {
	return func(yield func(Token) bool) {
		z := html.NewTokenizer(strings.NewReader(markup))
		for z.Next() != html.ErrorToken {
			raw := string(z.Raw()) // before Token, which lower-cases in place
			if !yield(Token{z.Token(), raw}) {
				return
			}
		}
	}
}

// Clean makes text storable: valid UTF-8, line feeds, no control characters.
func Clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\ufeff' {
			return -1
		}
		return r
	}, s)
}

// Clip returns at most n bytes of text at a rune boundary.
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Text renders sanitized markup as plain text of at most limit bytes: blocks become lines,
// quoted blocks get a ">" before each line, links show their target.
func Text(markup string, limit int) string {
	var r textRenderer
	for t := range Tokens(markup) {
		switch t.Type {
		case html.TextToken:
			r.text(t.Data)
		case html.StartTagToken, html.SelfClosingTagToken:
			r.start(t.Token)
		case html.EndTagToken:
			r.end(t.DataAtom)
		}
		if r.out.Len() > 2*limit {
			break
		}
	}
	r.breakLine()
	return Clip(strings.Trim(r.out.String(), "\n"), limit)
}

// maxQuoteDepth bounds the marks before a line; deeper quotes share a depth.
const maxQuoteDepth = 5

// textRenderer writes lines. line is the current one; gap requests an empty line before the
// next text, so that nested blocks do not add up.
type textRenderer struct {
	out      strings.Builder
	line     strings.Builder
	gap      bool
	quotes   int // depth of blockquotes around the current line
	above    int // and around the previous one
	pre      int
	href     string // of the current link
	hrefFrom int    // start of its text in line
}

func (r *textRenderer) text(s string) {
	if r.pre > 0 {
		for i, part := range strings.Split(s, "\n") {
			if i > 0 {
				r.newLine()
			}
			r.line.WriteString(part)
		}
		return
	}
	for i, word := range strings.FieldsFunc(s, isSpace) {
		if i > 0 || strings.IndexFunc(s, isSpace) == 0 {
			r.space()
		}
		r.line.WriteString(word)
	}
	if strings.LastIndexFunc(s, isSpace) == len(s)-1 {
		r.space()
	}
}

// isSpace matches white space that HTML collapses, which excludes the no-break space.
func isSpace(c rune) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' }

func (r *textRenderer) space() {
	if s := r.line.String(); s != "" && !strings.HasSuffix(s, " ") {
		r.line.WriteByte(' ')
	}
}

func (r *textRenderer) start(t html.Token) {
	switch t.DataAtom {
	case atom.Br:
		r.newLine()
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Table:
		r.paragraph()
	case atom.Blockquote:
		r.paragraph()
		r.quotes++
	case atom.Pre:
		r.breakLine()
		r.pre++
	case atom.Li:
		r.breakLine()
		r.line.WriteString("- ")
	case atom.Td, atom.Th:
		r.space()
	case atom.Hr:
		r.breakLine()
		r.line.WriteString("---")
		r.breakLine()
	case atom.Img:
		for _, a := range t.Attr {
			if a.Key == "alt" && strings.TrimSpace(a.Val) != "" {
				r.text(" [" + strings.TrimSpace(a.Val) + "] ")
			}
		}
	case atom.A:
		r.href = ""
		for _, a := range t.Attr {
			if a.Key == "href" {
				r.href, r.hrefFrom = a.Val, r.line.Len()
			}
		}
	default:
		if isBlock(t.DataAtom) {
			r.breakLine()
		}
	}
}

func (r *textRenderer) end(a atom.Atom) {
	switch a {
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Table:
		r.paragraph()
	case atom.Blockquote:
		r.breakLine()
		r.quotes = max(r.quotes-1, 0)
		r.paragraph()
	case atom.Pre:
		r.breakLine()
		r.pre = max(r.pre-1, 0)
	case atom.A:
		r.link()
	default:
		if isBlock(a) {
			r.breakLine()
		}
	}
}

// link appends the target of the ending link, unless its text shows it.
func (r *textRenderer) link() {
	href := r.href
	r.href = ""
	if href == "" || r.hrefFrom > r.line.Len() {
		return
	}
	label := strings.TrimSpace(r.line.String()[r.hrefFrom:])
	bare := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(href, "mailto:"), "tel:"), "/")
	if label == "" || strings.EqualFold(label, href) || strings.EqualFold(label, bare) || strings.HasSuffix(bare, "://"+label) {
		return
	}
	r.space()
	r.line.WriteString("<" + href + ">")
}

func isBlock(a atom.Atom) bool {
	return slices.Contains([]atom.Atom{atom.Div, atom.Tr, atom.Section, atom.Header, atom.Footer, atom.Main, atom.Address,
		atom.Center, atom.Dd, atom.Dt, atom.Dl, atom.Figure, atom.Figcaption, atom.Caption}, a)
}

// breakLine ends the current line if it is not empty.
func (r *textRenderer) breakLine() {
	if strings.TrimSpace(r.line.String()) != "" {
		r.newLine()
		return
	}
	r.line.Reset()
	r.hrefFrom = 0
}

// newLine ends the current line, empty or not.
func (r *textRenderer) newLine() {
	line := strings.TrimRight(r.line.String(), " \t")
	r.line.Reset()
	r.hrefFrom = 0
	if strings.TrimSpace(line) == "" {
		r.gap = true
		return
	}
	depth := min(r.quotes, maxQuoteDepth)
	if r.gap && r.out.Len() > 0 {
		r.out.WriteString(strings.TrimRight(strings.Repeat("> ", min(depth, r.above)), " "))
		r.out.WriteByte('\n')
	}
	r.out.WriteString(strings.Repeat("> ", depth))
	r.out.WriteString(line)
	r.out.WriteByte('\n')
	r.gap, r.above = false, depth
}

// paragraph ends the line and leaves an empty one.
func (r *textRenderer) paragraph() {
	r.breakLine()
	r.gap = true
}

// maxTables bounds nested tables in an excerpt, because each makes a browser lay out its
// content again. Mails use a few.
const maxTables = 12

// Excerpt returns the beginning of sanitized markup, about size bytes nested at most depth
// deep, and whether there is more. It drops deeper elements but not their content, and closes
// open elements.
func Excerpt(markup string, size, depth int) (beginning string, more bool) {
	var b strings.Builder
	nest := nesting{depth: depth}
	for t := range Tokens(markup) {
		if b.Len()+len(t.Raw) > size {
			if more = true; t.Type == html.TextToken {
				b.WriteString(Clip(t.Raw, size-b.Len()))
			}
			break
		}
		if nest.includes(t) {
			b.WriteString(t.Raw)
		}
	}
	if !more {
		return b.String(), false
	}
	for _, e := range slices.Backward(nest.open) {
		if e.included {
			b.WriteString("</" + e.String() + ">")
		}
	}
	return b.String(), true
}

// nesting is the open elements of an excerpt.
type nesting struct {
	depth         int // maximum of included
	open          []openElement
	included      int // included open elements
	tables        int // tables among them
	droppedTables int
}

type openElement struct {
	atom.Atom
	included bool
}

// includes reports whether the excerpt has a token, and opens or closes its element.
func (n *nesting) includes(t Token) bool {
	nests := t.DataAtom != 0 && !endsByItself(t.DataAtom) && !empty(t.DataAtom)
	switch {
	case n.droppedTables > 0 && partOfTable(t.DataAtom):
		return false
	case !nests:
		return true
	case t.Type == html.EndTagToken && len(n.open) > 0:
		e := n.open[len(n.open)-1]
		n.open = n.open[:len(n.open)-1]
		n.count(e, -1)
		return e.included
	case t.Type == html.StartTagToken || t.Type == html.SelfClosingTagToken:
		e := openElement{t.DataAtom, n.included < n.depth && (t.DataAtom != atom.Table || n.tables < maxTables)}
		n.open = append(n.open, e)
		n.count(e, 1)
		return e.included
	}
	return true
}

// count adds by to the numbers of open elements.
func (n *nesting) count(e openElement, by int) {
	if e.included {
		n.included += by
	}
	switch {
	case e.Atom != atom.Table:
	case e.included:
		n.tables += by
	default:
		n.droppedTables += by
	}
}

// partOfTable reports whether an element is a part of tables.
func partOfTable(a atom.Atom) bool {
	switch a {
	case atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th, atom.Caption, atom.Colgroup, atom.Col:
		return true
	}
	return false
}

// empty reports whether an element has no content and no end tag.
func empty(a atom.Atom) bool {
	switch a {
	case atom.Br, atom.Hr, atom.Img, atom.Wbr, atom.Col:
		return true
	}
	return false
}
