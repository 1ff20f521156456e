package safehtml

import "regexp"

// Patterns of style values, and of presentational attributes of older HTML, in lower case.
const (
	aColour  = `(?:#[0-9a-f]{3,8}|(?:rgb|hsl)a?\([0-9., %/]{1,40}\)|[a-z]{3,24})`
	aLength  = `(?:0|[0-9]{1,2}(?:\.[0-9]{1,3})?(?:px|pt))`
	aWidth   = `(?:0|auto|none|1?[0-9]{1,3}(?:\.[0-9]{1,3})?px|[0-9]{1,2}(?:\.[0-9]{1,3})?%|100%)`
	aBorder  = `(?:0|[0-9](?:\.[0-9]{1,3})?(?:px|pt)|thin|none|solid|dashed|dotted|double|` + aColour + `)`
	aFontPx  = `(?:[89]|[1-3][0-9]|4[0-8])(?:\.[0-9]{1,3})?px`
	aFontPt  = `(?:[6-9]|[12][0-9]|3[0-6])(?:\.[0-9]{1,3})?pt`
	aFontRem = `(?:0?\.[6-9][0-9]?|[12](?:\.[0-9]{1,3})?|3)rem`
)

func exactly(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)^(?:` + pattern + `)$`) }

// upTo matches a value followed by up to n more.
func upTo(n, value string) *regexp.Regexp {
	return exactly(value + `(?: +` + value + `){0,` + n + `}`)
}

var (
	colour   = exactly(aColour)
	extent   = exactly(`[0-9]{1,4}|[0-9]{1,2}(?:\.[0-9]{1,3})?%|100%`)
	small    = exactly(`[0-9]{1,3}`)
	fontSize = exactly(`[1-7]`)
)

// styles are the CSS properties allowed on elements, with their allowed values. They affect
// only the element's own appearance: none takes it out of the flow, covers others, hides it or
// loads anything, and sizes are bounded. Line heights are unitless: headings would inherit one
// with a unit, and their lines would overlap. Sizes relative to the parent's would multiply.
var styles = map[string]*regexp.Regexp{
	"color background-color background":    colour,
	"font-weight":                          exactly(`normal|bold|bolder|lighter|[1-9]00`),
	"font-style":                           exactly(`normal|italic|oblique`),
	"font-size":                            exactly(aFontPx + `|` + aFontPt + `|` + aFontRem + `|(?:xx?-)?small|medium|(?:xx?-)?large`),
	"font-family":                          exactly(`[-a-z0-9 ,'"_]{1,200}`),
	"line-height":                          exactly(`normal|[12](?:\.[0-9]{1,3})?|3`),
	"text-align":                           exactly(`left|right|center|justify|start|end`),
	"text-decoration text-decoration-line": exactly(`none|underline|line-through`),
	"text-transform":                       exactly(`none|uppercase|lowercase|capitalize`),
	"vertical-align":                       exactly(`baseline|top|middle|bottom|text-top|text-bottom|sub|super`),
	"white-space":                          exactly(`normal|nowrap|pre-wrap|pre-line`),
	"list-style-type":                      exactly(`none|disc|circle|square|decimal|lower-alpha|upper-alpha|lower-roman|upper-roman`),
	"display":                              exactly(`block|inline|inline-block`),

	"padding": upTo("3", aLength), "margin": upTo("3", `(?:auto|`+aLength+`)`),
	"padding-top padding-right padding-bottom padding-left": exactly(aLength),
	"margin-top margin-right margin-bottom margin-left":     exactly(`auto|` + aLength),
	"width min-width max-width":                             exactly(aWidth),

	"border border-top border-right border-bottom border-left": upTo("2", aBorder),
	"border-width border-style border-color":                   upTo("3", aBorder),
	"border-radius":                                            upTo("3", aLength),
	"border-collapse":                                          exactly(`collapse|separate`),
	"border-spacing":                                           upTo("1", aLength),
}
