import { execFileSync } from 'node:child_process'
import { cpSync, readFileSync, realpathSync, rmSync } from 'node:fs'
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
