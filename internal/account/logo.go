package account

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // format of logos
	"image/png"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // format of logos

	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/mail"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// Logo is the name of an organization's logo, a PNG: the SHA-256 of its content and its size in
// pixels, "9f86…-400x120". Empty: none.
type Logo string

// LogoPath is the path of logos below the base URL.
const LogoPath = "/brand/"

// Limits of logos.
const (
	// MaxLogoFile is the size limit of a file that becomes a logo, in bytes.
	MaxLogoFile = 1 << 20
	// maxLogoPixels bounds the memory of decoding: a pixel of a progressive JPEG needs 15 bytes.
	maxLogoPixels = 4 << 20
	// maxLogoScans bounds the time of decoding: a scan of a JPEG takes about 20 bytes and visits all
	// pixels. Encoders write up to 10.
	maxLogoScans = 100
	// Logos are scaled down to this size, twice that of their display.
	maxLogoWidth, maxLogoHeight = 400, 120
	// maxLogo is the size limit of a logo, in bytes.
	maxLogo = 48 << 10
	// storedLogos is the number of logos of an organization that are served, for earlier mails too.
	storedLogos = 10
)

var logoName = regexp.MustCompile(`^[0-9a-f]{64}-([1-9][0-9]{0,2})x([1-9][0-9]{0,2})$`)

// ParseLogo returns the logo of a path below [LogoPath].
func ParseLogo(path string) (Logo, bool) {
	name, found := strings.CutSuffix(path, ".png")
	return Logo(name), found && logoName.MatchString(name)
}

// Path returns the path of the logo below the base URL; empty for none.
func (l Logo) Path() string {
	if l == "" {
		return ""
	}
	return LogoPath + string(l) + ".png"
}

// Size returns the size of its display, in CSS pixels.
func (l Logo) Size() (width, height int) {
	m := logoName.FindStringSubmatch(string(l))
	if m == nil {
		return 0, 0
	}
	width, _ = strconv.Atoi(m[1])
	height, _ = strconv.Atoi(m[2])
	return (width + 1) / 2, (height + 1) / 2
}

// NewLogo returns the logo that a file becomes, and its content: a PNG of the same picture, without
// anything else that the file has. Errors are [problem.Invalid] for the field logo.
func (s *Service) NewLogo(file []byte) (Logo, []byte, error) {
	s.decodingLogo.Lock()
	defer s.decodingLogo.Unlock()
	var v problem.Validation
	picture, err := decodeLogo(file)
	if err != nil {
		v.Add("logo", "%v", err)
		return "", nil, v.Err()
	}
	for width, height := logoSize(picture.Bounds()); ; width, height = max(width*3/4, 1), max(height*3/4, 1) {
		scaled, same := picture.(*image.NRGBA)
		if !same || scaled.Bounds() != image.Rect(0, 0, width, height) {
			scaled = image.NewNRGBA(image.Rect(0, 0, width, height))
			draw.CatmullRom.Scale(scaled, scaled.Bounds(), picture, picture.Bounds(), draw.Src, nil)
		}
		if !visibleOnWhite(scaled) {
			v.Add("logo", "cannot be seen on white. Use a darker version, or one with a background")
			return "", nil, v.Err()
		}
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, scaled); err != nil {
			return "", nil, fmt.Errorf("encode logo: %w", err)
		}
		if out.Len() <= maxLogo {
			sum := sha256.Sum256(out.Bytes())
			return Logo(fmt.Sprintf("%s-%dx%d", hex.EncodeToString(sum[:]), width, height)), out.Bytes(), nil
		}
	}
}

// logoSize returns the largest size of a logo with the proportions of b that needs no enlarging.
func logoSize(b image.Rectangle) (width, height int) {
	width, height = b.Dx(), b.Dy()
	if width > maxLogoWidth {
		width, height = maxLogoWidth, height*maxLogoWidth/width
	}
	if height > maxLogoHeight {
		width, height = width*maxLogoHeight/height, maxLogoHeight
	}
	return max(width, 1), max(height, 1)
}

// decodeLogo decodes a file after a check of its type and size.
func decodeLogo(file []byte) (image.Image, error) {
	if len(file) > MaxLogoFile {
		return nil, fmt.Errorf("must be at most %d MB", MaxLogoFile>>20)
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(file))
	switch {
	case err != nil || !slices.Contains([]string{"png", "jpeg", "webp"}, format): // other packages register formats, too
		return nil, errors.New("must be a PNG, JPEG or WebP")
	case config.Width < 1 || config.Height < 1 || config.Width > maxLogoPixels/config.Height:
		return nil, fmt.Errorf("has %d × %d pixels and must have at most %d million", config.Width, config.Height, maxLogoPixels>>20)
	case config.Width > 20*config.Height || config.Height > 4*config.Width:
		return nil, errors.New("must not be wider than 20 times its height, nor higher than 4 times its width")
	case format == "jpeg" && bytes.Count(file, []byte{0xff, 0xda}) > maxLogoScans:
		return nil, fmt.Errorf("must have at most %d scans. Save it as a PNG", maxLogoScans)
	}
	picture, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, errors.New("is damaged, or of a kind of PNG, JPEG or WebP that is not supported, such as an animation")
	}
	return picture, nil
}

// visibleOnWhite reports whether half a percent of the pixels differ from white: logos are shown on white.
func visibleOnWhite(picture *image.NRGBA) bool {
	visible := 0
	for p := range slices.Chunk(picture.Pix, 4) {
		if p[3] >= 128 && linear([3]byte(p)).luminance() < 0.6 {
			visible++
		}
	}
	return visible*200 >= len(picture.Pix)/4
}

// Branding is how an organization looks to people outside of it, and in the mails to its members.
type Branding struct {
	Accent    string // as in [ParseAccent]
	File      []byte // becomes the logo, as in [Service.NewLogo]; nil: Logo
	Logo      Logo   // the present or a former one; empty: none
	ReplyLogo bool   // replies by mail end with the logo
}

// SetBranding sets the branding of an organization. Errors: [problem.Invalid], [problem.NotFound].
func (s *Service) SetBranding(ctx context.Context, id string, b Branding) (Organization, error) {
	accent, content, err := s.parseBranding(&b)
	if err != nil {
		return Organization{}, err
	}
	var o Organization
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		var err error
		if o, err = lockOrganization(ctx, tx, id); err != nil {
			return err
		}
		before := o
		o.Accent, o.Logo, o.ReplyLogo = accent, b.Logo, b.ReplyLogo
		changes := brandingChanges(before, o)
		if len(changes) == 0 {
			return nil
		}
		o.UpdatedAt = tx.Now
		if o.Logo != before.Logo {
			if err := storeLogo(ctx, tx, o, content); err != nil {
				return err
			}
		}
		if err := tx.Queue(ctx, "UPDATE organizations SET accent = $2, logo = $3, reply_logo = $4, updated_at = $5 WHERE id = $1",
			id, string(o.Accent), string(o.Logo), o.ReplyLogo, o.UpdatedAt.UnixMicro()); err != nil {
			return fmt.Errorf("set branding: %w", err)
		}
		s.notifyAfterCommit(tx, id, "organization")
		return s.audit.RecordTx(ctx, tx, audit.Entry{OrganizationID: id, Action: AuditOrganization, Target: organizationTarget(o), Changes: changes})
	})
	return o, err
}

// CheckBranding returns what [Service.SetBranding] would refuse.
func (s *Service) CheckBranding(b Branding) error {
	_, _, err := s.parseBranding(&b)
	return err
}

// parseBranding returns the color and, of a file, the content of the logo that b.Logo then names.
func (s *Service) parseBranding(b *Branding) (accent Accent, content []byte, err error) {
	var v problem.Validation
	if accent, err = ParseAccent(b.Accent); err != nil {
		v.Add("accent", "%v", err)
	}
	if b.File != nil {
		if b.Logo, content, err = s.NewLogo(b.File); err != nil {
			return "", nil, err
		}
	}
	if b.Logo == "" && b.ReplyLogo {
		v.Add("replyLogo", "needs a logo")
	}
	return accent, content, v.Err()
}

// brandingChanges returns the changes of branding for the audit log.
func brandingChanges(before, after Organization) map[string]audit.Change {
	changes := make(map[string]audit.Change)
	if before.Accent != after.Accent {
		changes["accent"] = audit.Change{From: before.Accent, To: after.Accent}
	}
	if before.Logo != after.Logo {
		changes["logo"] = audit.Change{From: before.Logo, To: after.Logo}
	}
	if before.ReplyLogo != after.ReplyLogo {
		changes["reply_logo"] = audit.Change{From: before.ReplyLogo, To: after.ReplyLogo}
	}
	return changes
}

// storeLogo stores the content of o's logo, and deletes the oldest former ones. Without content the logo
// is a former one, or none.
func storeLogo(ctx context.Context, tx *db.Tx, o Organization, content []byte) error {
	if content != nil {
		if _, err := tx.Exec(ctx, "INSERT INTO organization_logos (organization_id, name, content, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
			o.ID, string(o.Logo), content, tx.Now.UnixMicro()); err != nil {
			return fmt.Errorf("store logo: %w", err)
		}
	}
	n, err := tx.Exec(ctx, "UPDATE organization_logos SET created_at = $3 WHERE organization_id = $1 AND name = $2", o.ID, string(o.Logo), tx.Now.UnixMicro())
	if err != nil {
		return fmt.Errorf("use logo: %w", err)
	}
	if n == 0 && o.Logo != "" {
		var v problem.Validation
		v.Add("logo", "is no longer stored. Choose the file again")
		return v.Err()
	}
	// The clock may have been ahead when the former ones were stored.
	if err := tx.Queue(ctx, `DELETE FROM organization_logos WHERE organization_id = $1 AND name <> $3 AND name NOT IN (
		SELECT name FROM organization_logos WHERE organization_id = $1 ORDER BY created_at DESC, name LIMIT $2)`,
		o.ID, storedLogos, string(o.Logo)); err != nil {
		return fmt.Errorf("delete former logos: %w", err)
	}
	return nil
}

// LogoContent returns the PNG of a logo, or a [problem.NotFound].
func (s *Service) LogoContent(ctx context.Context, l Logo) (content []byte, err error) {
	err = s.db.QueryRow(ctx, "SELECT content FROM organization_logos WHERE name = $1 LIMIT 1", string(l)).Scan(&content)
	if errors.Is(err, db.ErrNoRows) {
		return nil, problem.New(problem.NotFound, "there is no such logo")
	}
	if err != nil {
		return nil, fmt.Errorf("read logo: %w", err)
	}
	return content, nil
}

// MailBrand returns the brand of mails to an address: that of its user's organization. Strangers get
// the zero value.
func (s *Service) MailBrand(ctx context.Context, q db.Querier, address string) (mail.Brand, error) {
	o, err := s.organizationOf(ctx, q, address)
	if problem.Of(err) == problem.NotFound {
		return mail.Brand{}, nil
	}
	if err != nil {
		return mail.Brand{}, err
	}
	return s.mailBrand(o), nil
}

// MailBrandOf returns the brand of an organization's mails by its slug; the zero value if there is none.
func (s *Service) MailBrandOf(ctx context.Context, q db.Querier, slug string) (mail.Brand, error) {
	o, err := organizationBySlug(ctx, q, slug)
	if problem.Of(err) == problem.NotFound {
		return mail.Brand{}, nil
	}
	if err != nil {
		return mail.Brand{}, err
	}
	return s.mailBrand(o), nil
}

// OrganizationOf returns the organization of the user with an e-mail address, or a [problem.NotFound].
func (s *Service) OrganizationOf(ctx context.Context, email string) (Organization, error) {
	return s.organizationOf(ctx, s.db, email)
}

func (s *Service) organizationOf(ctx context.Context, q db.Querier, email string) (Organization, error) {
	return db.One(ctx, q, scanOrganization, "SELECT "+organizationColumns+
		" FROM organizations WHERE id = (SELECT organization_id FROM users WHERE email_key = $1)", emailKey(email))
}

// mailBrand returns the brand of an organization's mails.
func (s *Service) mailBrand(o Organization) mail.Brand {
	b := mail.Brand{Accent: string(o.Accent)}
	if o.Logo != "" {
		b.Name, b.Logo = mail.PlainName(o.Name, "Logo"), s.redirects.base+o.Logo.Path()
		b.Width, b.Height = o.Logo.Size()
	}
	return b
}

// ReplyBrand returns the brand below an organization's replies; the zero value is none.
func (s *Service) ReplyBrand(ctx context.Context, id string) (mail.Brand, error) {
	o, err := s.Organization(ctx, id)
	if err != nil || !o.ReplyLogo {
		return mail.Brand{}, err
	}
	return s.mailBrand(o), nil
}
