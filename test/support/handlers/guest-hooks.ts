import { neverAborted } from '../../../src/base/abort.ts'
import { jsonLogger } from '../../../src/base/log.ts'
import type { ToolResult } from '../../../src/os/process/tools.ts'
import { FakeOs } from '../fakes/fake-os.ts'
import { containerRequest, type Machine, machine, sandboxRequest } from './machine.ts'

export const HOOKS_FOLDER = '/usr/share/hooks'

type Answer = Partial<ToolResult>

/** A sandbox with a folder of hooks. `answer` returns the result of a hook; `lines` are the log lines about hooks. */
export async function sandboxWithHooks(
  options: { readonly os?: FakeOs; readonly path?: string; readonly answer?: (path: string) => Answer } = {},
) {
  const { os = new FakeOs(), path = HOOKS_FOLDER, answer = () => ({}) } = options
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

export async function putHook(os: FakeOs, path: string, mode = 0o755): Promise<void> {
  await os.files.put(`${HOOKS_FOLDER}/${path}`, '#!/bin/sh\n')
  await os.files.chmod(`${HOOKS_FOLDER}/${path}`, mode)
}

/** Creates container `c1` with its own hooks; resolves with its config.json. */
export async function createWithHooks({ handlers, os }: Machine, hooks = {}) {
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

export const ranHooks = ({ tools }: FakeOs) => tools.calls.filter(({ argv }) => argv[0]?.includes('hook'))
