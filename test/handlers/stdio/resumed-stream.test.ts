import { expect, it } from 'vitest'
import { greet, keptOutput, nameOfStream } from '../../../src/handlers/stdio/ports/resumed-stream.ts'
import { StoredDescriptors } from '../../../src/handlers/stdio/stored-descriptors.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'

it('the streams of a guest have different names, each of eight bytes', () => {
  const names = ['p12', 'p13'].flatMap((key) =>
    (['stdin', 'stdout', 'stderr'] as const).map((stream) =>
      Buffer.from(nameOfStream(key, stream)).toString('hex'),
    ),
  )
  expect(names).toEqual([
    ...['3000000000000000', '3100000000000000', '3200000000000000'],
    ...['3400000000000000', '3500000000000000', '3600000000000000'],
  ])
})

it('a connection begins with the name and the total', () => {
  const streams = new FakeStreams()
  const { parentEnd, childEnd } = streams.socketPair()
  greet(streams, childEnd, nameOfStream('p12', 'stdout'), 2n ** 32n + 5n)
  expect(streams.tryRead(parentEnd, 99)?.toString('hex')).toBe('31000000000000000500000001000000')
})

it('an output that is kept is the same one again for the next agent', () => {
  const streams = new FakeStreams()
  const store = new Map<string, number>()
  const stored = new StoredDescriptors(
    {
      store: async (name, fd) => void store.set(name, fd),
      take: (name) => store.get(name),
      remove: async (name) => void store.delete(name),
    } as ConstructorParameters<typeof StoredDescriptors>[0],
    'p12',
  )
  const kept = keptOutput(streams, { stream: 'stdout', stored })
  expect([...store.keys()]).toEqual(['p12-stdout-kept', 'p12-stdout-sent'])
  expect(keptOutput(streams, { stream: 'stdout', stored })).toEqual(kept)
  expect(keptOutput(streams, { stream: 'stdin', stored })).toBeUndefined()
})
