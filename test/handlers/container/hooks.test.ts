import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { jsonLogger } from '../../../src/base/log.ts'
import type { ToolResult } from '../../../src/os/process/tools.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { containerRequest, type Machine, machine, sandboxRequest } from '../../support/handlers/machine.ts'

const FOLDER = '/usr/share/hooks'

type Answer = Partial<ToolResult>

/** A sandbox with the hooks of a folder, on a machine whose hooks answer as the test says. */
async function sandboxWithHooks(
  options: { readonly os?: FakeOs; readonly path?: string; readonly answer?: (path: string) => Answer } = {},
) {
  const { os = new FakeOs(), path = FOLDER, answer = () => ({}) } = options
  const lines: { msg: string; [field: string]: string }[] = []
  const sink = (line: string) => {
    const read = JSON.parse(line)
    if (read.msg.includes('hook')) lines.push(read)
  }
  const log = jsonLogger({ sink, level: () => 'warn', version: '1', pid: 1 })
  const made = await machine({ os, log })
  os.tools.script(([program = '']) => (program.includes('hook') ? answer(program) : undefined))
  await made.handlers.createSandbox(sandboxRequest({ guestHookPath: path }), neverAborted)
  return { made, os, lines }
}

async function put(os: FakeOs, path: string, mode = 0o755): Promise<void> {
  await os.files.put(`${FOLDER}/${path}`, '#!/bin/sh\n')
  await os.files.chmod(`${FOLDER}/${path}`, mode)
}

async function create({ handlers, os }: Machine, hooks = {}) {
  const { OCI, ...request } = containerRequest('c1')
  const own = {
    Prestart: [],
    CreateRuntime: [],
    CreateContainer: [],
    StartContainer: [],
    Poststart: [],
    Poststop: [],
  }
  if (OCI === undefined) throw new Error('no spec')
  await handlers.createContainer({ ...request, OCI: { ...OCI, Hooks: { ...own, ...hooks } } }, neverAborted)
  return JSON.parse(await os.files.readText('/run/kata-containers/c1/config.json'))
}

const ranHooks = ({ tools }: FakeOs) => tools.calls.filter(({ argv }) => argv[0]?.includes('hook'))

describe('hooks of the guest', () => {
  it('are the executable files of its folder by name, given to the runtime with their name and kind', async () => {
    const os = new FakeOs()
    for (const path of ['prestart/b', 'prestart/a', 'poststop/c']) await put(os, path)
    const { made, lines } = await sandboxWithHooks({ os })
    const own = { Path: '/own', Args: ['own'], Env: ['A=b'], Timeout: 3n }
    const { hooks } = await create(made, { Prestart: [own] })
    expect(hooks).toEqual({
      prestart: [
        { path: '/own', args: ['own'], env: ['A=b'], timeout: 3 },
        { path: `${FOLDER}/prestart/a`, args: ['a', 'prestart'], timeout: 10 },
        { path: `${FOLDER}/prestart/b`, args: ['b', 'prestart'], timeout: 10 },
      ],
      poststop: [{ path: `${FOLDER}/poststop/c`, args: ['c', 'poststop'], timeout: 10 }],
    })
    expect(lines).toEqual([])
  })

  it('are no links, folders, or files that cannot be executed, each of which is logged', async () => {
    const os = new FakeOs()
    await put(os, 'prestart/text', 0o644)
    await put(os, 'real')
    await os.files.symlink(`${FOLDER}/real`, `${FOLDER}/prestart/link`)
    await put(os, 'prestart/folder/inner')
    const { made, lines } = await sandboxWithHooks({ os })
    expect(await create(made)).not.toHaveProperty('hooks')
    expect(lines.map(({ path }) => path)).toEqual(
      ['folder', 'link', 'text'].map((name) => `${FOLDER}/prestart/${name}`),
    )
  })

  it.each([
    ['relative', 'usr/hooks', 'not an absolute path'],
    ['leading out of the guest', '/usr/../hooks', 'not an absolute path'],
    ['missing', '/usr/missing', 'not a directory'],
    ['no folder', '/etc/resolv.conf', 'not a directory'],
  ])('are none when their path is %s, which is logged', async (_what, path, text) => {
    const { made, lines } = await sandboxWithHooks({ path })
    expect(lines).toMatchObject([{ level: 'WARN', path, error: expect.stringContaining(text) }])
    expect(await create(made)).not.toHaveProperty('hooks')
  })

  it('of one kind are found although another kind’s folder is none', async () => {
    const os = new FakeOs()
    await put(os, 'prestart')
    await put(os, 'poststop/c')
    const { made, lines } = await sandboxWithHooks({ os })
    expect((await create(made)).hooks.poststop).toHaveLength(1)
    expect(lines).toMatchObject([{ path: `${FOLDER}/prestart` }])
  })
})

describe('poststart hooks', () => {
  const own = [
    { Path: '/own/hook', Args: ['name', 'x'], Env: ['A=b=c', 'D'], Timeout: 3n },
    { Path: '/other/hook', Args: [], Env: [], Timeout: 0n },
  ]

  it('are run by the agent once the process was started, with the container’s state', async () => {
    const os = new FakeOs()
    await put(os, 'poststart/guest')
    const { made, lines } = await sandboxWithHooks({ os })
    const { hooks } = await create(made, { Poststart: own })
    expect(hooks).toBeUndefined()
    expect(ranHooks(os)).toEqual([])
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    const calls = ranHooks(os)
    expect(calls.map(({ argv }) => argv)).toEqual([
      ['/own/hook', 'x'],
      ['/other/hook'],
      [`${FOLDER}/poststart/guest`, 'poststart'],
    ])
    expect(calls.map(({ options }) => options.name)).toEqual(['name', '/other/hook', 'guest'])
    expect(calls.map(({ options }) => options.timeoutMs)).toEqual([3000, 10_000, 10_000])
    expect(calls[0]?.options).toMatchObject({
      env: { A: 'b=c', D: '' },
      cwd: '/run/kata-containers/c1',
    })
    expect(JSON.parse(String(calls[0]?.options.stdin))).toEqual({
      ociVersion: '1.0.2',
      id: 'c1',
      status: 'running',
      pid: made.runtime.last().pid,
      bundle: '/run/kata-containers/c1',
      annotations: {},
    })
    expect(lines).toEqual([])
  })

  it('that fail are logged, and neither the start nor the next hook minds', async () => {
    const answer = (path: string) => (path === '/own/hook' ? { exitCode: 7, stderr: 'no luck\n' } : {})
    const { made, os, lines } = await sandboxWithHooks({ path: '', answer })
    await create(made, { Poststart: own })
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    expect(ranHooks(os)).toHaveLength(2)
    expect(lines).toMatchObject([{ containerId: 'c1', hook: '/own/hook', error: 'exit status 7: no luck' }])
  })

  it('are killed, and the rest left out, when the container is to be removed', async () => {
    const { made, os, lines } = await sandboxWithHooks({ path: '' })
    const began = Promise.withResolvers<void>()
    os.tools.script(([program], { signal }) => {
      if (program !== '/own/hook') return undefined
      began.resolve()
      return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
    })
    await create(made, { Poststart: own })
    const starting = made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await began.promise
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await starting
    expect(ranHooks(os).map(({ argv }) => argv[0])).toEqual(['/own/hook'])
    expect(lines).toMatchObject([{ hook: '/own/hook', error: 'container c1 is to be removed' }])
  })

  it('of kind poststop get their time in the runtime on top of its own', async () => {
    const { made, os } = await sandboxWithHooks({ path: '' })
    await create(made, { Poststop: own })
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(os.tools.calls.at(-1)).toMatchObject({ options: { timeoutMs: 60_000 + 3000 + 10_000 } })
  })

  it('are not run when the start fails', async () => {
    const { made, os } = await sandboxWithHooks({ path: '' })
    await create(made, { Poststart: own })
    made.runtime.refuse = (verb) => (verb === 'start' ? { exitCode: 1 } : undefined)
    await expect(made.handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toThrow('start')
    expect(ranHooks(os)).toEqual([])
  })
})
