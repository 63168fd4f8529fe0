//go:build linux

package steps_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/cubby-sandbox/cubby/agent/steps"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// The models of these examples are scripts: what they reply is written here, not
// recorded. What their code does is run.

// generate_code(task, language)
func ExampleGenerateCode() {
	m := model("Sure!\n\n```python\ndef add(a, b):\n    \"\"\"Return the sum.\"\"\"\n    return a + b\n```\n\nCall it with two numbers.")
	code, err := steps.GenerateCode(context.Background(), m, steps.Task{Text: "Add two numbers"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(code.Code)
	// Output:
	// def add(a, b):
	//     """Return the sum."""
	//     return a + b
}

// extract_code(response): the first block, else the whole reply.
func ExampleExtractCode() {
	for _, reply := range []string{"Code:\n```python\nprint(1)\n```\nand\n```python\nprint(2)\n```", "```\nprint(3)\n```", "print(4)"} {
		code, err := steps.ExtractCode(reply, "python")
		fmt.Println(code.Code, err)
	}
	// Output:
	// print(1) <nil>
	// print(3) <nil>
	// print(4) <nil>
}

// validate_code_input(code), which calls validate_python_code and
// check_dangerous_operations; contains_dangerous_patterns, validate_code.
func ExampleValidateCodeInput() {
	ctx := context.Background()
	v, err := validate.New(shared, validate.Options{Policy: validate.Production()})
	if err != nil {
		log.Fatal(err)
	}
	for _, source := range []string{
		"print(sum(range(101)))",
		"def f(:\n    pass",
		"import subprocess",
		"x = 'import subprocess is only a text'",
		"print('a\x00b')",
		strings.Repeat("x = 1\n", 2000),
	} {
		verdict, err := steps.ValidateCodeInput(ctx, v, codeexec.CodeBlock{Language: "python", Code: source})
		if err != nil {
			log.Fatal(err)
		}
		reason, _, _ := strings.Cut(verdict.Reason, ":")
		fmt.Printf("%v %q\n", verdict.Valid, reason)
	}
	// Output:
	// true ""
	// false "Not valid"
	// false "Unsafe operations"
	// true ""
	// false "Not valid"
	// false "Not valid"
}

// execute(code), execute_python(code, timeout), execute_code(code),
// code_interpreter_tool(code), sanitize_output(output, max_length).
func ExampleExecute() {
	result, err := steps.Execute(context.Background(), shared, codeexec.CodeBlock{Language: "python", Code: "print('The sum of 1 to 100 is exactly', sum(range(1, 101)))"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Outcome, result.ExitCode)
	fmt.Println(result.ToolOutput(codeexec.RenderOptions{MaxChars: 5000}).Text)
	// Output:
	// ok 0
	// ```tool_output
	// The sum of 1 to 100 is exactly 5050
	// ```
}

// parse_error(error_message)
func ExampleExplain() {
	code := "total = 10\ncount = 0\nprint(total / count)"
	e := &codeexec.ExecutionError{
		Type: "ZeroDivisionError", Message: "division by zero", Line: 3,
		Traceback: "Traceback (most recent call last):\n  File \"code.py\", line 3, in <module>\n    print(total / count)\n          ~~~~~~^~~~~~~\nZeroDivisionError: division by zero\n",
	}
	fmt.Println(steps.Explain(e, code))
	// Output:
	// ZeroDivisionError in line 3: division by zero
	//   2 | count = 0
	// > 3 | print(total / count)
	//     |             ^
	// Something is divided by zero: check the divisor first, it may be an empty list's length.
}

// fix_code_error(code, error)
func ExampleFixCode() {
	m := model("```python\nprint(10 / 2)\n```")
	fixed, err := steps.FixCode(context.Background(), m, codeexec.CodeBlock{Language: "python", Code: "print(10 / 0)"}, "ZeroDivisionError: division by zero")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(fixed.Code)
	// Output: print(10 / 2)
}

// iterative_fix(code, max_attempts)
func ExampleRepair() {
	m := model("```python\nnumbers = []\nprint(sum(numbers) / len(number))\n```", "```python\nnumbers = []\nprint(sum(numbers) / len(numbers) if numbers else 0)\n```")
	code := codeexec.CodeBlock{Language: "python", Code: "numbers = []\nprint(sum(numbers) / len(numbers))"}
	r, err := steps.Repair(context.Background(), m, shared, code, steps.RepairOptions{Attempts: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Success, r.Attempts, r.Result.Output)
	fmt.Println(r.Code.Code)
	// Output:
	// true 3 0
	//
	// numbers = []
	// print(sum(numbers) / len(numbers) if numbers else 0)
}

// run_with_retry(code, max_retries)
func ExampleRunWithRetry() {
	m := model("```python\nprint(int('42'))\n```")
	result, err := steps.RunWithRetry(context.Background(), m, shared, codeexec.CodeBlock{Language: "python", Code: "print(int('forty-two'))"}, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.Outcome, " ", result.Output)
	// Output: ok 42
}

// test_code(code, test_cases)
func ExampleTestCode() {
	code := codeexec.CodeBlock{Language: "python", Code: "def add(a, b):\n    return a + b"}
	r, err := steps.TestCode(context.Background(), shared, code, []steps.Case{
		{Call: "add(2, 3)", Expected: 5},
		{Call: "add(-1, 1)", Expected: 0},
		{Call: "add(0, 0)", Expected: 0},
		{Call: "add('a', 1)", Raises: "TypeError"},
		{Call: "add(0.1, 0.2)", Expected: 0.3},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Passed, "of", r.Total)
	for _, x := range r.Results {
		fmt.Printf("%s: %v, expected %s, got %q\n", x.Test, x.Passed, x.Expected, x.Actual)
	}
	// Output:
	// 4 of 5
	// add(2, 3): true, expected 5, got "5"
	// add(-1, 1): true, expected 0, got "0"
	// add(0, 0): true, expected 0, got "0"
	// add('a', 1): true, expected TypeError, got ""
	// add(0.1, 0.2): false, expected 0.3, got "0.30000000000000004"
}

// CodeExecutionAgent.solve_with_code(problem), with generate_solution and
// format_result.
func ExampleSolveWithCode() {
	m := model("```python\nprimes = [n for n in range(2, 100) if all(n % d for d in range(2, n))]\nprint(sum(primes))\n```")
	s, err := steps.SolveWithCode(context.Background(), m, shared, "Calculate the sum of all prime numbers less than 100", steps.RepairOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s)
	// Output:
	// Problem: Calculate the sum of all prime numbers less than 100
	//
	// Solution:
	// ```python
	// primes = [n for n in range(2, 100) if all(n % d for d in range(2, n))]
	// print(sum(primes))
	// ```
	//
	// Result: 1060
}

// analyze_data_with_code(data, question)
func ExampleAnalyzeData() {
	data := []map[string]any{{"city": "Oslo", "rain": 120}, {"city": "Rome", "rain": 60}, {"city": "Bergen", "rain": 240}}
	m := model("```python\nprint(max(data, key=lambda d: d['rain'])['city'])\n```")
	s, err := steps.AnalyzeData(context.Background(), m, shared, data, "Which city has the most rain?", steps.RepairOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Output)
	// Output: Bergen
}

// compute_math(expression)
func ExampleComputeMath() {
	ctx := context.Background()
	for _, expression := range []string{"sum(range(1, 101))", "math.sqrt(2) * 10", "2 ** 64", "__import__('os').system('ls')"} {
		value, err := steps.ComputeMath(ctx, shared, expression)
		if e, ok := errors.AsType[*steps.MathError](err); ok {
			fmt.Println(e.Reason)
			continue
		}
		fmt.Println(value)
	}
	// Output:
	// 5050
	// 14.142135623730951
	// 18446744073709551616
	// only functions of math can be called
}

// transform_code(code, transformation): "Make it more Pythonic".
func ExampleTransform() {
	original := codeexec.CodeBlock{Language: "python", Code: "def show(items):\n    out = []\n    for i in range(len(items)): out.append(items[i])\n    return out"}
	m := model("```python\ndef show(items):\n    return [item for item in items]\n```")
	t, err := steps.Transform(context.Background(), m, shared, original, "Make it more Pythonic", []steps.Case{
		{Call: "show([1, 2])", Expected: []int{1, 2}}, {Call: "show('ab')", Expected: []string{"a", "b"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Kept, t.Before.Passed, t.After.Passed)
	fmt.Println(t.Code.Code)
	// Output:
	// false 2 2
	// def show(items):
	//     return [item for item in items]
}
