// Package beat lets what is done again and again be done at the same moments.
//
// A processor that sleeps and is woken, and a runtime that looks for work and goes to
// sleep again, cost more than what most ticks do: a router in which nothing happens
// spends most of its time on waking. Ticks of 25 and of 100 ms that fall together wake
// it 40 times a second, where five that do not wake it 150 times.
package beat
