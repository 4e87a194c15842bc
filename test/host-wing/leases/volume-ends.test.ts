import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { watchDaemons } from '../../../src/host/instance/watch-daemons.ts'

describe('the end of the process of a volume', () => {
  it.each([
    ['is told', { served: '', live: '' }, ['the daemon of backend root has ended']],
    ['is not told where this host serves it by another', { served: '/web/root.sock', live: '' }, []],
    ['is not told where another bridges it', { served: '', live: 'volume-root' }, []],
  ])('%s', async (_, { live, served }, told) => {
    const said: string[] = []
    const changes: Promise<unknown>[] = []
    const ends: ((child: { readonly name: string }) => void)[] = []
    const machine = {
      gone: new Promise(() => {}),
      holder: {
        onExit: (listener: (typeof ends)[number]) => ends.push(listener),
        children: async () => [{ name: 'volume-root', exit: live === '' ? { status: 0 } : undefined }],
      },
    } as unknown as Parameters<typeof watchDaemons>[1]
    const instance = {
      record: { specification: { backends: {} } },
      recorded: {
        record: { leaving: [] },
        steps: [{ step: 'volume', words: ['root', 'volume-root', '/web/root.sock'] }],
        commit: async ({ text }: { readonly text: string }) => void said.push(text),
      },
      change: (change: () => Promise<void>) => {
        const made = change()
        changes.push(made)
        return made
      },
      context: { machine, log: silentLogger(), volumes: { serves: (socket: string) => socket === served } },
    }
    watchDaemons(instance as unknown as Parameters<typeof watchDaemons>[0], machine)
    for (const end of ends) end({ name: 'volume-root' })
    await Promise.all(changes)
    expect(said).toEqual(told)
  })
})
