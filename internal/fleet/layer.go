package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/db"

	"github.com/oklog/ulid/v2"
)

// Every ride that began somewhere is as it is now in one of four places, from which
// it moves on:
//
//   - in indexes of its own as long as it is open;
//   - as a row of untiled_rides: when it has ended, and whenever it is changed
//     again, in the same transaction ([placeRide]);
//   - in a tile of a young layer, with others that had ended by some time
//     ([Service.tile]);
//   - in a tile of a home: homes are layers that have all rides from one id to
//     another, so that there is one for each ride ([Service.compact]).
//
// What it was before may be left in the last two: tiles that say an older revision
// of a ride are not believed. A home says the last one that it was told, so there is
// never more that is not to be believed than what young layers have.

// tiling is numbers of rides that the work is divided by.
type tiling struct {
	tile  int // of a tile, at most
	young int // of a young layer, at least
	turn  int // that go into young layers before these are moved home
	old   int // of young layers together, before they are
	home  int // of a home, about

	open     int // open in a box, of which on a list goes along its order instead of reading them all
	gathered int // of an export whose ids are gathered before it begins, at most
}

// defaultTiling makes little work of what changes with each ride, and of a box on a
// map a few tiles of each of some dozen layers.
func defaultTiling() tiling {
	return tiling{tile: 512, young: 1024, turn: 256 << 10, old: 16 << 10, home: 256 << 10, open: 1000, gathered: 200_000}
}

// movedAtOnce bounds the rides that a transaction takes from untiled_rides.
const movedAtOnce = 2 << 10

// layer is tiles that were made together.
type layer struct {
	id    int64
	home  bool
	rides int
}

// layerCache keeps some of what was read of layers, which never change.
type layerCache struct {
	extents stampedCache[[]extent] // by layer; up to two hundred kilobytes each, of a home
	tiles   stampedCache[tile]     // by layer and number; some twenty kilobytes each
}

func newLayerCache() *layerCache {
	return &layerCache{extents: newStampedCache[[]extent](300), tiles: newStampedCache[tile](3000)}
}

var untiledColumns = slices.Concat([]string{"start_cell", "id", "revision"}, wordColumns[:], valueColumns[:])

// placing is the statement of placeRide.
var placing = func() string {
	places, set := make([]string, len(untiledColumns)), make([]string, len(untiledColumns))
	for i, name := range untiledColumns {
		places[i], set[i] = "$"+strconv.Itoa(i+2), name+" = excluded."+name
	}
	return "INSERT INTO untiled_rides (organization_id, " + strings.Join(untiledColumns, ", ") + ") VALUES ($1, " + strings.Join(places, ", ") +
		") ON CONFLICT (organization_id, start_cell, id) DO UPDATE SET " + strings.Join(set[2:], ", ")
}()

// valueOf is a column of a row.
func valueOf(row []column, name string) any {
	return row[slices.IndexFunc(row, func(c column) bool { return c.name == name })].value
}

// tileable reports whether a ride with these columns is for a tile: it is over, and
// began somewhere.
func tileable(row []column) bool {
	return valueOf(row, "start_cell") != nil && !RideStatus(valueOf(row, "status").(string)).Open()
}

// placeRide notes where a ride began that is made or changed: its columns before,
// nil of a new one, and now.
func placeRide(ctx context.Context, tx *db.Tx, organizationID string, before, after []column) error {
	if before != nil && tileable(before) && (!tileable(after) || valueOf(before, "start_cell") != valueOf(after, "start_cell")) {
		_, err := tx.Exec(ctx, "DELETE FROM untiled_rides WHERE organization_id = $1 AND start_cell = $2 AND id = $3",
			organizationID, valueOf(before, "start_cell"), valueOf(before, "id"))
		if err != nil {
			return fmt.Errorf("forget where a ride began: %w", err)
		}
	}
	if !tileable(after) {
		return nil
	}
	args := append(make([]any, 0, 1+len(untiledColumns)), organizationID)
	for _, name := range untiledColumns {
		args = append(args, valueOf(after, name))
	}
	if _, err := tx.Exec(ctx, placing, args...); err != nil {
		return fmt.Errorf("note where a ride began: %w", err)
	}
	return nil
}

// placedOf is what tiles have of a ride with these columns.
func placedOf(row []column) (p placed, err error) {
	for _, c := range row {
		switch v := c.value.(type) {
		case string:
			if i := slices.Index(wordColumns[:], c.name); i >= 0 {
				p.words[i] = v
			} else if c.name == "id" {
				p.id, err = parseRideID(v)
			}
		case int64:
			if i := slices.Index(valueColumns[:], c.name); i >= 0 {
				p.values[i] = v
			} else if c.name == "start_cell" {
				p.cell = v
			} else if c.name == "revision" {
				p.revision = v
			}
		}
	}
	return p, err
}

// scanPlaced reads untiledColumns.
func scanPlaced(row db.Row) (p placed, err error) {
	var id string
	into := []any{&p.cell, &id, &p.revision}
	for c := range p.words {
		into = append(into, db.IntoText(&p.words[c]))
	}
	for c := range p.values {
		into = append(into, &p.values[c])
	}
	if err := row.Scan(into...); err != nil {
		return p, err
	}
	p.id, err = parseRideID(id)
	return p, err
}

// tileLock is the lock of whoever adds or deletes layers.
func tileLock(organizationID string) string { return "fleet tiles " + organizationID }

// moveRides moves an organization's rides on, if there are enough of them.
func (s *Service) moveRides(ctx context.Context, organizationID string) error {
	for more := true; more; {
		var err error
		if more, err = s.tile(ctx, organizationID); err != nil {
			return fmt.Errorf("put rides into tiles: %w", err)
		}
		if err := s.compact(ctx, organizationID); err != nil {
			return fmt.Errorf("put tiles of rides together: %w", err)
		}
	}
	return nil
}

// tile moves an organization's rides into young layers, as long as there are enough
// of them, and reports whether there are more, for another turn.
func (s *Service) tile(ctx context.Context, organizationID string) (more bool, err error) {
	for moved := 0; moved < s.tiling.turn; {
		n := 0
		err := s.db.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 AS one FROM untiled_rides WHERE organization_id = $1 LIMIT $2) AS r",
			organizationID, s.tiling.young).Scan(&n)
		if err != nil || n < s.tiling.young {
			return false, err
		}
		err = s.db.Write(ctx, func(tx *db.Tx) error {
			n = 0
			if err := tx.Lock(ctx, tileLock(organizationID)); err != nil {
				return err
			}
			cell, id := int64(math.MaxInt64), ""
			err := tx.QueryRow(ctx, "SELECT start_cell, id FROM untiled_rides WHERE organization_id = $1 ORDER BY start_cell, id LIMIT 1 OFFSET $2",
				organizationID, max(movedAtOnce, s.tiling.young)).Scan(&cell, &id)
			if err != nil && !errors.Is(err, db.ErrNoRows) {
				return err
			}
			rides, err := db.All(ctx, tx, scanPlaced, "DELETE FROM untiled_rides WHERE organization_id = $1 AND (start_cell, id) < ($2, $3) RETURNING "+strings.Join(untiledColumns, ", "), organizationID, cell, id)
			if n = len(rides); err != nil || n == 0 {
				return err
			}
			return packLayer(rides, s.tiling.tile, false).insert(ctx, tx, organizationID)
		})
		if err != nil {
			return false, err
		}
		moved += max(n, 1)
	}
	return true, nil
}

// packedLayer is a layer to be stored.
type packedLayer struct {
	layer
	tiles   []packedTile
	extents []byte
}

// packLayer packs rides in a new layer, and changes their order.
func packLayer(rides []placed, size int, home bool) *packedLayer {
	tiles, extents := packTiles(rides, size)
	return &packedLayer{layer{newStamp(), home, len(rides)}, tiles, packExtents(extents)}
}

func (l *packedLayer) insert(ctx context.Context, tx *db.Tx, organizationID string) error {
	home := 0
	if l.home {
		home = 1
	}
	_, err := tx.Exec(ctx, "INSERT INTO ride_layers (organization_id, id, home, rides, extents) VALUES ($1, $2, $3, $4, $5)",
		organizationID, l.id, home, l.rides, l.extents)
	if err != nil {
		return fmt.Errorf("insert a layer of rides: %w", err)
	}
	for n, t := range l.tiles {
		_, err := tx.Exec(ctx, "INSERT INTO ride_tiles (organization_id, layer_id, n, cells, facts, ids) VALUES ($1, $2, $3, $4, $5, $6)",
			organizationID, l.id, n, t.cells, t.facts, t.ids)
		if err != nil {
			return fmt.Errorf("insert a tile of rides: %w", err)
		}
	}
	return nil
}

func deleteLayers(ctx context.Context, tx *db.Tx, organizationID string, ids []int64) error {
	for _, statement := range [...]string{
		"DELETE FROM ride_tiles WHERE organization_id = $1 AND layer_id = ANY($2)",
		"DELETE FROM ride_layers WHERE organization_id = $1 AND id = ANY($2)",
	} {
		if _, err := tx.Exec(ctx, statement, organizationID, ids); err != nil {
			return fmt.Errorf("delete layers of rides: %w", err)
		}
	}
	return nil
}

// layersOf returns the layers of an organization.
func layersOf(ctx context.Context, q db.Querier, organizationID string) ([]layer, error) {
	return db.All(ctx, q, func(row db.Row) (l layer, err error) {
		var home int64
		err = row.Scan(&l.id, &home, &l.rides)
		l.home = home == 1
		return l, err
	}, "SELECT id, home, rides FROM ride_layers WHERE organization_id = $1", organizationID)
}

// extents returns the extents of a layer's tiles, which nobody may change.
func (l *layer) extents(ctx context.Context, q db.Querier, organizationID string, kept *layerCache) ([]extent, error) {
	list, err := kept.extents.get(strconv.FormatInt(l.id, 10), 0, func(list *[]extent) error {
		var text []byte
		err := q.QueryRow(ctx, "SELECT extents FROM ride_layers WHERE organization_id = $1 AND id = $2", organizationID, l.id).Scan(&text)
		if err == nil {
			*list, err = parseExtents(text)
		}
		if err != nil {
			return err
		}
		n := 0
		for i := range *list {
			n += (*list)[i].rides
		}
		if n != l.rides {
			return errTile
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read a layer of rides: %w", err)
	}
	return *list, nil
}

// ridesOf returns what layers say of their rides, which may be in several; none, and
// false, when one of the layers is gone.
func (s *Service) ridesOf(ctx context.Context, organizationID string, layers []layer) (rides []placed, there bool, err error) {
	n := 0
	for _, l := range layers {
		n += l.rides
	}
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		now, err := layersOf(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		if there = !slices.ContainsFunc(layers, func(l layer) bool { return !slices.Contains(now, l) }); !there {
			return nil
		}
		rides = make([]placed, 0, n)
		_, err = db.All(ctx, tx, func(row db.Row) (struct{}, error) {
			var p packedTile
			if err := row.Scan(&p.cells, &p.facts, &p.ids); err != nil {
				return struct{}{}, err
			}
			some, err := p.unpack()
			rides = append(rides, some...)
			return struct{}{}, err
		}, "SELECT cells, facts, ids FROM ride_tiles WHERE organization_id = $1 AND layer_id = ANY($2)", organizationID, idsOfLayers(layers))
		if err == nil && len(rides) != n {
			err = errTile
		}
		return err
	})
	return rides, there, err
}

// compact moves the rides of the young layers of an organization to their homes, if
// there are enough of them. Until the end they are in both, and in the end only if
// nobody else has changed the homes, or deleted a young layer, meanwhile.
func (s *Service) compact(ctx context.Context, organizationID string) error {
	layers, err := layersOf(ctx, s.db, organizationID)
	if err != nil {
		return err
	}
	n := 0
	young := slices.DeleteFunc(slices.Clone(layers), func(l layer) bool { return l.home })
	for _, l := range young {
		n += l.rides
	}
	if n < s.tiling.old {
		return nil
	}
	homes, err := s.homes(ctx, organizationID, layers)
	if errors.Is(err, db.ErrNoRows) { // others are at it
		return nil
	}
	if err != nil {
		return err
	}
	list, there, err := s.ridesOf(ctx, organizationID, young)
	if err != nil || !there {
		return err
	}
	moving := make(map[ulid.ULID]placed, len(list)) // as of their last revisions
	for _, p := range list {
		if had, ok := moving[p.id]; !ok || had.revision < p.revision {
			moving[p.id] = p
		}
	}
	groups := make([][]placed, len(homes)+1) // of each home, and of a new one
	for _, p := range moving {
		at := s.homeOf(homes, p.id)
		groups[at] = append(groups[at], p)
	}
	known := make(map[int64]bool) // the homes that there must be
	for _, h := range homes {
		known[h.id] = true
	}
	for i, group := range groups {
		if len(group) == 0 {
			continue
		}
		var gone []int64
		if i < len(homes) {
			gone = []int64{homes[i].id}
			had, there, err := s.ridesOf(ctx, organizationID, []layer{homes[i].layer})
			if err != nil || !there {
				return err
			}
			stay := slices.DeleteFunc(had, func(p placed) bool {
				_, ok := moving[p.id]
				return ok
			})
			group = append(stay, group...)
		}
		added := s.packHomes(group)
		alone, err := s.alone(ctx, organizationID, young, known, func(tx *db.Tx) error {
			if err := deleteLayers(ctx, tx, organizationID, gone); err != nil {
				return err
			}
			for _, l := range added {
				if err := l.insert(ctx, tx, organizationID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || !alone {
			return err
		}
		for _, id := range gone {
			delete(known, id)
		}
		for _, l := range added {
			known[l.id] = true
		}
	}
	_, err = s.alone(ctx, organizationID, young, known, func(tx *db.Tx) error {
		return deleteLayers(ctx, tx, organizationID, idsOfLayers(young))
	})
	return err
}

// packHomes packs rides of one home, or of several when they are too many, and
// changes their order.
func (s *Service) packHomes(rides []placed) []*packedLayer {
	var homes []*packedLayer
	if len(rides) > s.tiling.home+s.tiling.home/2 {
		slices.SortFunc(rides, func(a, b placed) int { return a.id.Compare(b.id) })
	}
	for len(rides) > s.tiling.home+s.tiling.home/2 {
		n := s.tiling.home
		for n < len(rides) && sameHalf(rides[n-1].id, rides[n].id) { // which homeOf does not tell apart
			n++
		}
		if n == len(rides) {
			break
		}
		homes = append(homes, packLayer(rides[:n], s.tiling.tile, true))
		rides = rides[n:]
	}
	return append(homes, packLayer(rides, s.tiling.tile, true))
}

func sameHalf(a, b ulid.ULID) bool {
	one, _ := halves(a)
	other, _ := halves(b)
	return one == other
}

// alone runs fn in a transaction, unless the homes are others than those that are
// known or one of the young layers is gone: then it reports false.
func (s *Service) alone(ctx context.Context, organizationID string, young []layer, known map[int64]bool, fn func(tx *db.Tx) error) (alone bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		alone = false
		if err := tx.Lock(ctx, tileLock(organizationID)); err != nil {
			return err
		}
		layers, err := layersOf(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		homes := 0
		there := make(map[int64]bool)
		for _, l := range layers {
			there[l.id] = true
			if l.home {
				homes++
			}
		}
		for _, l := range young {
			if !there[l.id] {
				return nil
			}
		}
		for id := range known {
			if !there[id] {
				return nil
			}
		}
		if homes != len(known) {
			return nil
		}
		alone = true
		return fn(tx)
	})
	return alone, err
}

func idsOfLayers(layers []layer) []int64 {
	ids := make([]int64, len(layers))
	for i := range layers {
		ids[i] = layers[i].id
	}
	return ids
}

// homeLayer is a home, and the first halves of its rides' ids.
type homeLayer struct {
	layer
	ids reach
}

// homes returns the homes among layers, in the order of their ids.
func (s *Service) homes(ctx context.Context, organizationID string, layers []layer) ([]homeLayer, error) {
	var homes []homeLayer
	for _, l := range layers {
		if !l.home {
			continue
		}
		extents, err := l.extents(ctx, s.db, organizationID, s.layers)
		if err != nil {
			return nil, err
		}
		h := homeLayer{l, nowhere}
		for i := range extents {
			h.ids = h.ids.with(extents[i].ids.least).with(extents[i].ids.greatest)
		}
		homes = append(homes, h)
	}
	slices.SortFunc(homes, func(a, b homeLayer) int { return cmp.Compare(a.ids.least, b.ids.least) })
	return homes, nil
}

// homeOf returns which of some homes, in order, is that of a ride; one more when it
// is later than all and the last is full.
func (s *Service) homeOf(homes []homeLayer, id ulid.ULID) int {
	high, _ := halves(id)
	after, _ := slices.BinarySearchFunc(homes, high, func(h homeLayer, high int64) int {
		if h.ids.least <= high {
			return -1
		}
		return 1
	})
	if after == 0 && len(homes) > 0 {
		return 0
	}
	last := after - 1
	if after == len(homes) && (last < 0 || homes[last].rides >= s.tiling.home && high > homes[last].ids.greatest) {
		return len(homes)
	}
	return last
}
