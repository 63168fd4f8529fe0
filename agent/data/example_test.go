package data_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/cubby-sandbox/cubby/agent/data"
)

// A model is told what is in a table, and its code finds the file beside it.
func Example() {
	source, err := data.CSV("rain.csv", []byte("year,mm\n2023,812.5\n2024,\n2025,640\n"))
	if err != nil {
		log.Fatal(err)
	}
	text, files := data.Question("Which year was the wettest?", source)
	_, table, _ := strings.Cut(text, "```data\n") // before it stands what was asked, and of which file
	fmt.Print(table)
	fmt.Println("\nin the sandbox:", files[0].Name)
	// Output:
	// column "year": integer, 2023 to 2025
	// column "mm": number, 640 to 812.5; 1 missing
	// row 1: "2023" "812.5"
	// row 2: "2024" ""
	// row 3: "2025" "640"
	// ```
	// in the sandbox: rain.csv
}

// Values of a program become a file of JSON.
func ExampleRows() {
	type city struct {
		Name  string `json:"name"`
		Large bool   `json:"large"`
	}
	source, err := data.Rows("cities.json", []city{{"Rome", true}, {"Siena", false}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(source.File.Content))
	// Output: [{"name":"Rome","large":true},{"name":"Siena","large":false}]
}
