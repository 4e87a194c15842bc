import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { buildHolder } from '../../src/build/native.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { Holder } from '../../src/host/instance/holder/holder.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'

/** 100 MB of a program's output through the holder's ring to an attached client, against the program's pipe. */
const ROUNDS = 15
const BYTES = 100_000_000
const WRITER = `read go; exec head -c ${BYTES} /dev/zero`

const folder = makeTemporaryFolder(tmpdir())
const holder = await startHolder(folder, await buildHolder())
try {
  const floors: number[] = []
  const values: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    floors.push(await pipeMs())
    values.push(await ringMs(holder))
  }
  const figure = { value: median(values), floor: median(floors), limit: 1.15 }
  report({ figure: 'console through the holder, 100 MB', unit: 'ms', ...figure })
} finally {
  await holder.end()
  removeTemporaryFolder(folder)
}

async function pipeMs(): Promise<number> {
  const { stdin, stdout } = spawn('/bin/sh', ['-c', WRITER], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: benchEnvironment(),
  })
  return await readMs(stdout, () => stdin.end('go\n'))
}

async function ringMs(holder: Holder): Promise<number> {
  const [ring] = await holder.rings()
  await holder.start({ name: 'writer', output: 'console', argv: ['/bin/sh', '-c', WRITER] })
  const { stream } = await holder.attach(0, ring?.end ?? 0n)
  const ended = new Promise<void>((resolve) => {
    const stop = holder.onExit(() => {
      stop()
      resolve()
    })
  })
  const ms = await readMs(stream, () => stream.write('go\n'))
  await ended
  return ms
}

async function readMs(stream: AsyncIterable<Buffer>, go: () => void): Promise<number> {
  const begin = performance.now()
  go()
  let total = 0
  for await (const chunk of stream) total += chunk.length
  if (total !== BYTES) throw new Error(`${total} bytes came`)
  return performance.now() - begin
}
