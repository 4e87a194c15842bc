import fc from 'fast-check'

/** One change of bytes; `at` is the place as a fraction of the length, in 1/65,536. */
type Mutation = readonly [kind: (typeof KINDS)[number], at: number, value: number]

const KINDS = ['flip', 'set', 'cut', 'insert', 'remove', 'repeat', 'number', 'zeros'] as const

const MUTATION: fc.Arbitrary<Mutation> = fc.tuple(fc.constantFrom(...KINDS), fc.nat(0xffff), fc.nat(0xff))

export function mutated(seeds: readonly Uint8Array[]): fc.Arbitrary<Buffer> {
  if (seeds.length === 0) throw new Error('no bytes to change')
  return fc
    .tuple(fc.constantFrom(...seeds), fc.array(MUTATION, { maxLength: 8 }))
    .map(([seed, mutations]) => mutations.reduce(changed, Buffer.from(seed)))
}

export function anyBytes(seeds: readonly Uint8Array[]): fc.Arbitrary<Buffer> {
  return fc.oneof(
    { weight: 5, arbitrary: mutated(seeds) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)) },
  )
}

/** Cuts bytes into pieces. `cuts` are fractions of the length, in 1/65,536. */
export function inPieces(bytes: Buffer, cuts: readonly number[]): readonly Buffer[] {
  const places = cuts.map((cut) => Math.floor((cut * bytes.length) / 0x10000)).sort((a, b) => a - b)
  const pieces: Buffer[] = []
  let start = 0
  for (const end of [...places, bytes.length]) {
    if (end > start) pieces.push(bytes.subarray(start, end))
    start = end
  }
  return pieces
}

export const CUTS = fc.array(fc.nat(0xffff), { maxLength: 6 })

/** Numbers at which lengths and counts overflow. */
const NUMBERS = [
  0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0xffff, 0x400000, 0x400001, 0x7fffffff, 0x80000000, 0xffffffff,
]

function changed(bytes: Buffer, [kind, at, value]: Mutation): Buffer {
  const place = Math.floor((at * bytes.length) / 0x10000)
  const before = bytes.subarray(0, place)
  const after = bytes.subarray(place)
  switch (kind) {
    case 'flip':
      if (place < bytes.length) bytes.writeUInt8(bytes.readUInt8(place) ^ (1 << (value % 8)), place)
      return bytes
    case 'set':
      if (place < bytes.length) bytes.writeUInt8(value, place)
      return bytes
    case 'cut':
      return before
    case 'insert':
      return Buffer.concat([before, Buffer.alloc(1 + (value % 8), value), after])
    case 'remove':
      return Buffer.concat([before, after.subarray(1 + (value % 16))])
    case 'repeat':
      return Buffer.concat([before, after.subarray(0, 1 + value), after])
    case 'number': {
      const number = NUMBERS[value % NUMBERS.length] ?? 0
      if (place + 4 <= bytes.length) {
        if (value % 2 === 0) bytes.writeUInt32BE(number, place)
        else bytes.writeUInt32LE(number, place)
      }
      return bytes
    }
    case 'zeros':
      return Buffer.concat([before, Buffer.alloc(value), after])
  }
}
