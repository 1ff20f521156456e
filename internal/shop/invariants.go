package shop

import "github.com/kickstand-dev/kickstand/internal/db"

// FileColumns are the columns with exports for privacy requests.
var FileColumns = []db.FileColumn{{Table: "privacy_exports", Key: "blob_key"}}
