// Package packed carries a compressed program inside another and provides it as an open
// file that is ready to be run. It unpacks it where nobody else can change it, once for
// each content, and removes other versions that nobody uses any more.
//
// What is found is judged by its descriptor and run by it: what was checked is what
// runs. Package ready has the judgement.
package packed
