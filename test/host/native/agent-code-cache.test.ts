import { execFileSync } from 'node:child_process'
import { cpSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { buildAgent, codeCacheScript, writeCodeCache } from '../../../src/build/agent.ts'
import { pinnedNode } from '../../../src/build/project.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it("the code cache of the agent has the functions of a pod's first calls, and the same bytes each time", async () => {
  const built = realpathSync(await buildAgent())
  const folder = join(temporaryFolder(), 'agent')
  cpSync(built, folder, { recursive: true })
  const cache = join(folder, 'agent-bundle.cache')
  const words = ['--random-seed=1', codeCacheScript, join(folder, 'agent-bundle.cjs'), cache]
  rmSync(cache)
  execFileSync(pinnedNode(), words)
  const withoutCalls = readFileSync(cache)
  await writeCodeCache(folder)
  const written = readFileSync(cache)
  expect(written.equals(readFileSync(join(built, 'agent-bundle.cache')))).toBe(true)
  // A start and a first answer are 1.5 times as much.
  expect(written.length).toBeGreaterThan(withoutCalls.length * 1.7)
})

it('a code cache has the same bytes when the run is so slow that its later timers would fire', () => {
  const folder = temporaryFolder()
  const bundle = join(folder, 'bundle.cjs')
  writeFileSync(
    bundle,
    `(function () {
      const end = performance.now() + Number(process.argv[2])
      const look = () => performance.now() < end ? setTimeout(look, 100) : process.exit()
      setTimeout(look, 100)
      setTimeout(() => { console.log('late') }, 1000)
    })`,
  )
  const written = [0, 1500].map((ms) => {
    const cache = join(folder, `cache-${ms}`)
    const run = ['--random-seed=1', codeCacheScript, bundle, cache]
    const said = execFileSync(pinnedNode(), [...run, String(ms)], { encoding: 'utf8' })
    expect(said).toBe('')
    execFileSync(pinnedNode(), run)
    return readFileSync(cache)
  })
  expect(written[1]?.equals(written[0] ?? Buffer.alloc(0))).toBe(true)
})
