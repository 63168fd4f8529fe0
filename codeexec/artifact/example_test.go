package artifact_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby/codeexec/artifact"
)

// Each save of a name is a version of its own. Without a number the newest is meant.
func Example() {
	ctx := context.Background()
	var store artifact.Memory
	whose := artifact.SessionInfo{AppName: "reports", UserID: "ada", SessionID: "1"}
	for _, text := range []string{"draft", "final"} {
		if _, err := store.Save(ctx, whose, "report.txt", &artifact.Artifact{Data: []byte(text), MIMEType: "text/plain"}); err != nil {
			log.Fatal(err)
		}
	}
	newest, err := store.Load(ctx, whose, "report.txt", nil)
	if err != nil {
		log.Fatal(err)
	}
	versions, err := store.ListVersions(ctx, whose, "report.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(newest.Data), versions)
	// Output: final [0 1]
}
