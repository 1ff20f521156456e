// Package markdown renders the text of agents as HTML.
//
// The syntax is CommonMark with tables, strikethrough and plain links, minus what text for people
// triggers by accident: HTML, which is shown as typed, and headings by underlining. Line breaks
// remain. The result must still be sanitized.
package markdown

import (
	"bytes"
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// pictureScheme is the scheme of links to attached pictures, by file name.
const pictureScheme = "attachment:"

var converter = goldmark.New(
	goldmark.WithParser(parser.NewParser(
		parser.WithBlockParsers(
			util.Prioritized(parser.NewThematicBreakParser(), 200),
			util.Prioritized(parser.NewListParser(), 300),
			util.Prioritized(parser.NewListItemParser(), 400),
			util.Prioritized(parser.NewCodeBlockParser(), 500),
			util.Prioritized(parser.NewATXHeadingParser(), 600),
			util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
			util.Prioritized(parser.NewBlockquoteParser(), 800),
			util.Prioritized(parser.NewParagraphParser(), 1000),
		),
		parser.WithInlineParsers(
			util.Prioritized(parser.NewCodeSpanParser(), 100),
			util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300),
			util.Prioritized(parser.NewEmphasisParser(), 500),
		),
		parser.WithParagraphTransformers(append(parser.DefaultParagraphTransformers(),
			util.Prioritized(tables{extension.NewTableParagraphTransformer()}, 200))...),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)),
	goldmark.WithExtensions(extension.Strikethrough, extension.Linkify),
	goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(
		util.Prioritized(extension.NewTableHTMLRenderer(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), 500))),
)

// tables recognizes tables. A line of dashes alone, as above a signature, makes none.
type tables struct{ parser.ParagraphTransformer }

func (t tables) Transform(paragraph *ast.Paragraph, reader text.Reader, pc parser.Context) {
	lines := paragraph.Lines()
	for i := range lines.Len() {
		if line := lines.At(i); len(bytes.Trim(line.Value(reader.Source()), " \t\r\n-:")) == 0 {
			return
		}
	}
	t.ParagraphTransformer.Transform(paragraph, reader, pc)
}

// Bounds for the parser, which needs quadratic time for nested blocks and for unclosed links: marks
// of quotes and list items before a line, and opening brackets.
const (
	maxNesting  = 20
	maxBrackets = 5000
)

// Render returns text as HTML, not sanitized. picture returns the URL of the attached picture with
// a file name, to which an image with the destination "attachment:name" refers; empty means that
// there is none, and its description is shown. The result is empty if the text is too complex.
func Render(markdown string, picture func(name string) string) string {
	if tooComplex(markdown) {
		return ""
	}
	source := []byte(markdown)
	document := converter.Parser().Parse(text.NewReader(source))
	placePictures(document, source, picture)
	var b bytes.Buffer
	if err := converter.Renderer().Render(&b, source, document); err != nil {
		return "" // a buffer takes everything
	}
	return b.String()
}

// tooComplex reports whether a text exceeds the bounds.
func tooComplex(markdown string) bool {
	for line := range strings.Lines(markdown) {
		if nesting(line) > maxNesting {
			return true
		}
	}
	return strings.Count(markdown, "[") > maxBrackets
}

// nesting returns the number of marks of quotes and list items before a line.
func nesting(line string) (marks int) {
	for i := range len(line) - 1 {
		switch c := line[i]; {
		case c == '>', strings.IndexByte("-+*.)", c) >= 0 && (line[i+1] == ' ' || line[i+1] == '\t'):
			marks++
		case strings.IndexByte(" \t-+*.)0123456789", c) < 0:
			return marks
		}
	}
	return marks
}

// placePictures replaces the destinations of images that refer to attached pictures.
func placePictures(document ast.Node, source []byte, picture func(name string) string) {
	var unknown []*ast.Image
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // fails only if the function does
		image, ok := n.(*ast.Image)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		if name, ok := pictureName(string(image.Destination)); !ok {
			return ast.WalkContinue, nil
		} else if address := picture(name); address != "" {
			image.Destination = []byte(address)
		} else {
			unknown = append(unknown, image)
		}
		return ast.WalkContinue, nil
	})
	for _, image := range unknown {
		image.Parent().ReplaceChild(image.Parent(), image, ast.NewString([]byte("["+string(description(image, source))+"]")))
	}
}

// description returns the text of an image.
func description(image *ast.Image, source []byte) []byte {
	var b []byte
	for c := image.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b = append(b, t.Value(source)...)
		}
	}
	return b
}

// pictureName returns the file name to which an image's destination refers.
func pictureName(destination string) (name string, ok bool) {
	name, ok = strings.CutPrefix(destination, pictureScheme)
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return name, ok
}

var pictureMark = regexp.MustCompile(`!\[([^\]\n]*)\]\(<?` + pictureScheme + `([^)\s>]+)>?\)`)

// WithoutPictures returns text for readers of plain text: in place of each image that refers to an
// attached picture for which has is true stands its description in brackets, or nothing if
// describe is false. Code remains as it is.
func WithoutPictures(markdown string, describe bool, has func(name string) bool) string {
	if !strings.Contains(markdown, "]("+pictureScheme) && !strings.Contains(markdown, "](<"+pictureScheme) {
		return markdown
	}
	code := codeIn(markdown)
	var shown strings.Builder
	end := 0 // of what is copied
	for _, at := range pictureMark.FindAllStringSubmatchIndex(markdown, -1) {
		described, name := markdown[at[2]:at[3]], markdown[at[4]:at[5]]
		name, _ = pictureName(pictureScheme + name)
		isCode := slices.ContainsFunc(code, func(s text.Segment) bool { return s.Start <= at[0] && at[1] <= s.Stop })
		if isCode || !has(name) {
			continue
		}
		shown.WriteString(markdown[end:at[0]])
		if end = at[1]; describe {
			shown.WriteString("[" + cmp.Or(described, name) + "]")
		}
	}
	shown.WriteString(markdown[end:])
	return strings.TrimSpace(shown.String())
}

// codeIn returns the segments of code in a text; none if the text is too complex.
func codeIn(markdown string) (code []text.Segment) {
	if tooComplex(markdown) {
		return nil
	}
	document := converter.Parser().Parse(text.NewReader([]byte(markdown)))
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // fails only if the function does
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			code = append(code, n.Lines().Sliced(0, n.Lines().Len())...)
		case *ast.CodeSpan:
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				if t, ok := c.(*ast.Text); ok {
					code = append(code, t.Segment)
				}
			}
		}
		return ast.WalkContinue, nil
	})
	return code
}
