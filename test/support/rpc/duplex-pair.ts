import { Duplex } from 'node:stream'

/** Two ends of an in-memory connection: each end reads what is written to the other, and its end of stream. */
export function duplexPair(): readonly [Duplex, Duplex] {
  const make = (other: () => Duplex): Duplex =>
    new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        other().push(chunk)
        done()
      },
      final(done) {
        other().push(null)
        done()
      },
    })
  const one: Duplex = make(() => two)
  const two: Duplex = make(() => one)
  return [one, two]
}
