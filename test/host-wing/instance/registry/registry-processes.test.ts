import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { build } from 'esbuild'
import { beforeAll, describe, expect, it } from 'vitest'
import { pinnedNode } from '../../../../src/build/project.ts'
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { type Random, randomFrom } from '../../../support/kills/random.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const LANES = 4
const ROUNDS = 20

/** The writer as a bundle, which starts in half the time. */
const bundles = temporaryFolder()

beforeAll(async () => {
  await build({
    entryPoints: [join(import.meta.dirname, 'registry-writer.ts')],
    outdir: bundles,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    platform: 'node',
    format: 'esm',
  })
})

describe('a registry whose process is killed', () => {
  it('has all that was acknowledged, and no transaction in part', async () => {
    const lanes = Array.from({ length: LANES }, (_, lane) => killOften(randomFrom(lane + 1)))
    for (const { acknowledged, kills } of await Promise.all(lanes)) {
      expect(acknowledged).toBeGreaterThan(ROUNDS)
      expect(Object.values(kills).every((count) => count > 2)).toBe(true)
    }
  }, 120_000)
})

describe('two processes', () => {
  it('cannot have one folder, and the second is told the pid of the first', async () => {
    const folder = temporaryFolder()
    const { child, lines } = startWriter(folder)
    await lines.next()
    const refused = `${folder}: used by the daemon with pid ${child.pid}, want that stopped first`
    await expect(openRegistry(folder)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: refused,
    })
    // Another one in the same process neither gets it nor takes the lock away from the first.
    await expect(openRegistry(folder)).rejects.toThrow(refused)
    expect(child.exitCode).toBe(null)
    await kill(child)
    const registry = await openRegistry(folder)
    await expect(openRegistry(folder)).rejects.toThrow(`used by the daemon with pid ${process.pid}`)
    const second = startWriter(folder)
    expect((await once(second.child, 'close'))[0]).toBe(1)
    await registry.close()
  })
})

/** Starts a writer in one folder again and again, and kills it: while it opens, or after some commits. */
async function killOften(random: Random) {
  const folder = temporaryFolder()
  const kills = { opening: 0, writing: 0 }
  let acknowledged = 0
  for (let round = 0; round < ROUNDS; round++) {
    const { child, lines } = startWriter(folder)
    const closed = once(child, 'close')
    const moment = random() < 0.25 ? 'opening' : 'writing'
    const delayMs = 40 + random() * 160
    const timer = moment === 'opening' ? setTimeout(() => child.kill('SIGKILL'), delayMs) : undefined
    let commits = Math.floor(random() * 12)
    kills[moment] += 1
    for await (const line of lines) {
      const [kind, number] = line.split(' ')
      expect(kind, line).toMatch(/^(found|done)$/)
      if (kind === 'found') expect(Number(number), `round ${round}`).toBeGreaterThanOrEqual(acknowledged)
      acknowledged = Number(number)
      if (commits === 0 && moment === 'writing') child.kill('SIGKILL')
      commits -= 1
    }
    clearTimeout(timer)
    expect(await closed, `round ${round}`).toEqual([null, 'SIGKILL'])
  }
  return { acknowledged, kills }
}

function startWriter(folder: string): {
  child: ChildProcess
  lines: NodeJS.AsyncIterator<string> & AsyncIterable<string>
} {
  const child = spawn(pinnedNode(), [join(bundles, 'registry-writer.mjs'), folder], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {},
  })
  return { child, lines: createInterface(child.stdout)[Symbol.asyncIterator]() }
}

async function kill(child: ChildProcess): Promise<void> {
  const closed = once(child, 'close')
  child.kill('SIGKILL')
  await closed
}
