import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Consoles } from '../../../src/os/streams/consoles.ts'
import { linuxConsoles } from '../../../src/os/streams/consoles.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { Fd, Streams } from '../../../src/os/streams/streams.ts'
import { FakeConsoles } from '../../support/fakes/streams/fake-consoles.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'
import { realNative } from '../../support/os/real-native.ts'
import { startRuntimeWithPty } from '../../support/programs/python-pty.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let streams: Streams
let consoles: Consoles
let folder: string
beforeEach(async () => {
  const native = await realNative()
  streams = linuxStreams(native)
  consoles = linuxConsoles(native, streams)
  folder = temporaryFolder()
})

async function readLine(fd: Fd): Promise<string> {
  let text = ''
  while (!text.endsWith('\n')) {
    await streams.readable(fd)
    const bytes = streams.tryRead(fd, 100)
    if (bytes?.length === 0) throw new Error(`EOF after ${JSON.stringify(text)}`)
    text += bytes?.toString() ?? ''
  }
  return text
}

describe.each([
  ['linuxConsoles', () => consoles],
  ['FakeConsoles', () => new FakeConsoles(new FakeStreams())],
])('%s', (_name, build: () => Consoles) => {
  it('stops waiting when its signal fires or it is closed', async () => {
    const path = join(folder, 'console.sock')
    const consoles = build()
    const signalled = consoles.listen(path)
    expect(() => consoles.listen(path)).toThrow(`listen ${path}: EADDRINUSE`)
    const stop = new AbortController()
    const stopped = signalled.master(stop.signal)
    stop.abort(new Error('enough'))
    await expect(stopped).rejects.toThrow('enough')
    await signalled.close()
    const again = consoles.listen(path)
    const ended = expect(again.master(neverAborted)).rejects.toMatchObject({ errno: 'EBADF' })
    await again.close()
    await ended
  })
})

describe('linuxConsoles', () => {
  it('receives the master of a pty, which reads, writes, resizes and ends', async () => {
    const path = join(folder, 'console.sock')
    const console = consoles.listen(path)
    const runtime = startRuntimeWithPty(path)
    const exited = once(runtime, 'exit')
    const master = await console.master(AbortSignal.timeout(10_000))
    await console.close()
    expect(existsSync(path)).toBe(false)

    expect(streams.tryRead(master, 10)).toBeUndefined()
    streams.tryWrite(master, Buffer.from('hello\n'))
    expect(await readLine(master)).toBe('hello\n')
    streams.setWindowSize(master, 33, 77)
    streams.tryWrite(master, Buffer.from('size\n'))
    expect(await readLine(master)).toBe('33 77\n')

    streams.tryWrite(master, Buffer.from('end\n'))
    await streams.readable(master)
    expect(streams.tryRead(master, 10)?.length).toBe(0)
    streams.close(master)
    await exited
  })

  it('throws when a runtime sends no descriptor', async () => {
    const path = join(folder, 'console.sock')
    const console = consoles.listen(path)
    connect(path).end('nothing but a name')
    await expect(console.master(AbortSignal.timeout(10_000))).rejects.toThrow(
      `receive a descriptor at ${path}: ENODATA`,
    )
    await console.close()
  })

  it('names a path at which it cannot listen', () => {
    const long = join(folder, 'x'.repeat(108))
    expect(() => consoles.listen(long)).toThrow(`listen ${long}: ENAMETOOLONG`)
    expect(() => consoles.listen('/nowhere/console.sock')).toThrow('listen /nowhere/console.sock: ENOENT')
  })
})
