package tiles

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
)

// The grid of drawn tiles: coordinates are integers, four to a unit.
const (
	grid     = 4
	gridSize = Size * grid
	// outside is the distance up to which lines are drawn beyond the edge, so that their ends
	// are not visible.
	outside = 8 * grid
	// seam is the distance up to which areas are drawn beyond the edge.
	seam = 1.5 * grid
	// maxSVG is the size of a drawn tile that leaves room for the rest of a page's tiles. Finer
	// details are omitted until it is met.
	maxSVG = 160 << 10
)

// paint is a way to draw shapes. Paints are drawn in the order of their numbers.
type paint int

const (
	green paint = iota
	water
	stream
	building
	footway
	rail
	minorEdge
	mediumEdge
	mainEdge
	minor
	medium
	mainRoad
	border
	land // of the built-in map, below everything
	paints
)

// paintOrder is the order of drawing.
var paintOrder = [...]paint{land, green, water, stream, building, footway, rail, minorEdge, mediumEdge, mainEdge, minor, medium, mainRoad, border}

// Colours of the page, with their defaults.
const (
	landColor     = "var(--map-land,#f4f3ef)"
	waterColor    = "var(--map-water,#b9d6e6)"
	greenColor    = "var(--map-green,#d7e6c8)"
	buildingColor = "var(--map-building,#e6e2db)"
	roadColor     = "var(--map-road,#fff)"
	edgeColor     = "var(--map-edge,#d3cfc8)"
	mainColor     = "var(--map-main,#f8e3a4)"
	pathColor     = "var(--map-path,#c9bfae)"
	borderColor   = "var(--map-border,#a59fb5)"
	textColor     = "var(--map-text,#4a4a52)"
	haloColor     = "var(--map-halo,#fff)"
)

// fills reports whether a paint fills areas.
func (p paint) fills() bool {
	return p == land || p == green || p == water || p == building
}

// attributes returns the presentation attributes of a paint at a zoom of the map.
func (p paint) attributes(zoom int) string {
	fill := func(color string) string { return `fill="` + color + `" fill-rule="evenodd"` }
	stroke := func(color string, width float64, more string) string {
		return `fill="none" stroke="` + color + `" stroke-width="` + strconv.FormatFloat(math.Round(width*grid*10)/10, 'f', -1, 64) + `" stroke-linejoin="round"` + more
	}
	// Widths of roads grow with the zoom, though less than the roads.
	wide := func(at14 float64) float64 { return max(.5, at14*math.Pow(1.55, float64(zoom-14))) }
	const round = ` stroke-linecap="round"`
	switch p {
	case land:
		return fill(landColor)
	case green:
		return fill(greenColor)
	case water:
		return fill(waterColor)
	case stream:
		return stroke(waterColor, wide(1.6), "")
	case building:
		return fill(buildingColor)
	case footway:
		return stroke(pathColor, wide(.6), ` stroke-dasharray="12 8"`)
	case rail:
		return stroke(pathColor, wide(1), "")
	case minorEdge:
		return stroke(edgeColor, wide(1.7)+1.4, "")
	case mediumEdge:
		return stroke(edgeColor, wide(2.8)+1.6, "")
	case mainEdge:
		return stroke(edgeColor, wide(3.6)+1.8, "")
	case minor:
		return stroke(roadColor, wide(1.7), round)
	case medium:
		return stroke(roadColor, wide(2.8), round)
	case mainRoad:
		return stroke(mainColor, wide(3.6), round)
	case border:
		return stroke(borderColor, 1.2, ` stroke-dasharray="20 10"`)
	}
	return ""
}

// label is a name on a tile.
type label struct {
	text   string
	x, y   float64 // in units of the grid
	turn   float64 // degrees
	size   float64 // of the font, in units
	rank   float64 // smaller labels come first where two would overlap
	marker bool    // with a dot
	strong bool
}

// canvas collects the shapes of a tile.
type canvas struct {
	zoom   int // of the map, at which the tile has its size
	paths  [paints]bytes.Buffer
	labels []label
}

// bound is the part of the grid to draw.
func bound(margin float64) orb.Bound {
	return orb.Bound{Min: orb.Point{-margin, -margin}, Max: orb.Point{gridSize + margin, gridSize + margin}}
}

// area adds rings, without details smaller than apart units of the grid.
func (c *canvas) area(p paint, rings []orb.Ring, apart float64) {
	for _, ring := range rings {
		// Further than the background of the next tile, whose colour would show at the edge.
		if cut := clip.Ring(bound(seam), slices.Clone(ring)); len(cut) > 2 { // it clips in place

			c.line(p, orb.LineString(cut), apart, true)
		}
	}
}

// lines adds lines.
func (c *canvas) lines(p paint, lines []orb.LineString, apart float64) {
	for _, line := range lines {
		for _, cut := range clip.LineString(bound(outside), line) {
			c.line(p, cut, apart, false)
		}
	}
}

// line adds points to the path of a paint, as integers relative to each other.
func (c *canvas) line(p paint, line orb.LineString, apart float64, closed bool) {
	b := &c.paths[p]
	var x, y, n int
	start := b.Len()
	for i, at := range line {
		nx, ny := int(math.Round(at[0])), int(math.Round(at[1]))
		last := i == len(line)-1
		if n > 0 && (closed && last || !last && math.Hypot(float64(nx-x), float64(ny-y)) < apart || nx == x && ny == y) {
			continue
		}
		switch n {
		case 0:
			fmt.Fprintf(b, "M%d %d", nx, ny)
		case 1:
			fmt.Fprintf(b, "l%d %d", nx-x, ny-y)
		default:
			if ny-y >= 0 {
				fmt.Fprintf(b, " %d %d", nx-x, ny-y)
			} else {
				fmt.Fprintf(b, " %d%d", nx-x, ny-y)
			}
		}
		x, y, n = nx, ny, n+1
	}
	if n < 2 || closed && n < 3 {
		b.Truncate(start)
		return
	}
	if closed {
		b.WriteByte('z')
	}
}

// size is the number of bytes of all paths.
func (c *canvas) size() (n int) {
	for i := range c.paths {
		n += c.paths[i].Len()
	}
	return n
}

// svg returns the picture: shapes as "t", names as "l", so that a page can show the names of
// all tiles above the shapes of all tiles. background is the colour of the tile.
func (c *canvas) svg(background string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%[1]d" viewBox="0 0 %[1]d %[1]d">`, Size)
	// Slightly larger than the tile, so that the edges of two tiles leave no gap.
	fmt.Fprintf(&b, `<g id="t" transform="scale(%s)"><path fill="%s" d="M-1-1H%d V%[3]dH-1z"/>`, strconv.FormatFloat(1.0/grid, 'f', -1, 64), background, gridSize+1)
	for _, p := range paintOrder {
		if c.paths[p].Len() > 0 {
			fmt.Fprintf(&b, `<path %s d="%s"/>`, p.attributes(c.zoom), c.paths[p].Bytes())
		}
	}
	fmt.Fprintf(&b, `</g><g id="l" fill="%s" stroke="%s" stroke-width="3" stroke-linejoin="round" text-anchor="middle" font-family="system-ui,sans-serif" paint-order="stroke">`, textColor, haloColor)
	for _, l := range c.placed() {
		l.write(&b)
	}
	b.WriteString("</g></svg>")
	return b.Bytes()
}

// write writes a label.
func (l *label) write(b *bytes.Buffer) {
	n := func(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
	x, y := l.x/grid, l.y/grid
	if l.marker {
		fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="2" stroke-width="1"/>`, n(x), n(y))
		y -= 5
	} else {
		y += l.size / 3
	}
	fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s"`, n(x), n(y), n(l.size))
	if l.strong {
		b.WriteString(` font-weight="600"`)
	}
	if l.turn != 0 {
		fmt.Fprintf(b, ` transform="rotate(%s %s %s)"`, n(l.turn), n(x), n(l.y/grid))
	}
	fmt.Fprintf(b, `>%s</text>`, html.EscapeString(l.text))
}

// maxLabels is the maximum number of names on a tile.
const maxLabels = 60

// placed returns the labels that do not overlap others of a better rank.
func (c *canvas) placed() []label {
	slices.SortStableFunc(c.labels, func(a, b label) int {
		switch {
		case a.rank < b.rank:
			return -1
		case a.rank > b.rank:
			return 1
		}
		return 0
	})
	var kept []label
	var boxes []orb.Bound
	for _, l := range c.labels {
		if l.x < 0 || l.y < 0 || l.x >= gridSize || l.y >= gridSize {
			continue // that of a neighbour
		}
		box := l.box()
		if slices.ContainsFunc(boxes, box.Intersects) {
			continue
		}
		kept, boxes = append(kept, l), append(boxes, box)
		if len(kept) == maxLabels {
			break
		}
	}
	return kept
}

// box is about the area of a label.
func (l *label) box() orb.Bound {
	turn := l.turn * math.Pi / 180
	width, height := float64(len([]rune(l.text)))*l.size*.55*grid, l.size*1.4*grid
	w := (math.Abs(math.Cos(turn))*width + math.Abs(math.Sin(turn))*height) / 2
	h := (math.Abs(math.Sin(turn))*width + math.Abs(math.Cos(turn))*height) / 2
	return orb.Bound{Min: orb.Point{l.x - w - 2*grid, l.y - h - 2*grid}, Max: orb.Point{l.x + w + 2*grid, l.y + h + 2*grid}}
}
