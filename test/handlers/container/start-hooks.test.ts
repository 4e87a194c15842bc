import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { FakeOs } from '../../support/fakes/fake-os.ts'
import type { FakeProcess } from '../../support/handlers/fake-runtime.ts'
import { createWithHooks, sandboxWithHooks } from '../../support/handlers/guest-hooks.ts'
import type { Machine } from '../../support/handlers/machine.ts'
import { readToEnd, write } from '../../support/handlers/stdio-ends.ts'

const FIRST = { Path: '/first/hook', Args: ['name', 'x'], Env: ['A=b'], Timeout: 3n }
const SECOND = { Path: '/second/hook', Args: [], Env: [], Timeout: 0n }

describe('startContainer hooks', () => {
  let made: Machine
  let os: FakeOs
  let lines: readonly { readonly msg: string; readonly [field: string]: string }[]
  let added: Record<string, unknown>[]

  beforeEach(async () => {
    ;({ made, os, lines } = await sandboxWithHooks({ path: '' }))
    const config = await createWithHooks(made, { StartContainer: [FIRST, SECOND] })
    expect(config.hooks).toBeUndefined()
    await os.files.put(`/proc/${made.runtime.last().pid}/status`, 'Name:\tx\nNSpid:\t4711\t1\n')
    added = []
    made.runtime.refuse = async (verb) => {
      const file = os.tools.calls.at(-1)?.argv.find((word) => word.endsWith('input.json'))
      if (verb === 'exec' && file !== undefined) added.push(JSON.parse(await os.files.readText(file)))
      return undefined
    }
  })

  const start = () => made.handlers.startContainer({ containerId: 'c1' }, neverAborted)

  async function hook(number: number): Promise<FakeProcess> {
    await expect.poll(() => added.length).toBe(number)
    await expect.poll(() => made.runtime.processes.length).toBe(2)
    return made.runtime.last()
  }

  it('run in the container before its program starts, with its state on stdin', async () => {
    const starting = start()
    const first = await hook(1)
    expect(made.runtime.calls).toEqual(['create', 'exec'])
    expect(added[0]).toMatchObject({ args: ['/first/hook', 'x'], env: ['A=b'], cwd: '/' })
    expect(added[0]).toMatchObject({ capabilities: { bounding: ['CAP_KILL'] } })
    expect(JSON.parse(await readToEnd(os, first.stdin))).toEqual({
      ...{ ociVersion: '1.0.2', id: 'c1', status: 'created', pid: 1, annotations: {} },
      bundle: '/run/kata-containers/c1',
    })
    made.runtime.end(first.pid, { code: 0 })
    const second = await hook(2)
    expect(made.runtime.calls).toEqual(['create', 'exec', 'exec'])
    expect(added[1]).toMatchObject({ args: ['/second/hook'] })
    made.runtime.end(second.pid, { code: 0 })
    await starting
    expect(made.runtime.calls).toEqual(['create', 'exec', 'exec', 'start'])
    expect(lines).toEqual([])
  })

  it('that fail, or cannot be run, are logged; the next runs and the program starts', async () => {
    const starting = start()
    const first = await hook(1)
    write(os, first.stderr, 'no luck\n')
    made.runtime.refuse = (verb) => (verb === 'exec' ? { exitCode: 1, stderr: 'no such file' } : undefined)
    made.runtime.end(first.pid, { code: 7 })
    await starting
    expect(made.runtime.calls.at(-1)).toBe('start')
    const failed = { msg: 'startContainer hook failed', containerId: 'c1' }
    expect(lines).toMatchObject([
      { ...failed, hook: '/first/hook', error: 'exit status 7: no luck' },
      { ...failed, hook: '/second/hook', error: expect.stringContaining('no such file') },
    ])
  })

  it('are killed when their time is over', async () => {
    const starting = start()
    const first = await hook(1)
    os.clock.advance(3000)
    const second = await hook(2)
    expect(made.runtime.processes).not.toContain(first)
    os.clock.advance(10_000)
    await starting
    expect(made.runtime.processes).not.toContain(second)
    expect(lines).toMatchObject([
      { hook: '/first/hook', error: 'not finished after 3000 ms' },
      { hook: '/second/hook', error: 'not finished after 10000 ms' },
    ])
  })

  it('are killed, and later ones skipped, when the container is removed meanwhile', async () => {
    const starting = start().catch(() => {})
    await hook(1)
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await starting
    expect(added).toHaveLength(1)
    expect(made.runtime.processes).toEqual([])
    expect(lines).toMatchObject([{ hook: '/first/hook', error: 'container c1 is to be removed' }])
  })
})
