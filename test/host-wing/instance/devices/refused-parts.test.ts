import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import { replaceFile } from '../../../../src/host/instance/devices/replace-file.ts'
import { RunningOpener } from '../../../../src/host/instance/devices/running-opener.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

interface Given {
  readonly execute: string
  readonly arguments?: Readonly<Record<string, unknown>>
}

/** A QEMU that keeps what it is given, and refuses each block node. */
class RefusingQemu {
  readonly kept = new Set<unknown>()

  #sets(): readonly number[] {
    return [...this.kept].filter((id) => typeof id === 'number')
  }

  async pass({ arguments: args = {} }: Given): Promise<void> {
    this.kept.add(args['fdset-id'] ?? args.fdname)
  }

  async command({ arguments: args = {} }: Given): Promise<void> {
    this.kept.delete(args.fdname)
  }

  async execute(name: string, args: Readonly<Record<string, unknown>>): Promise<unknown> {
    if (name === 'blockdev-add') throw new AgentError('INTERNAL', 'blockdev-add: refused')
    if (name === 'query-fdsets') return this.#sets().map((id) => ({ 'fdset-id': id, fds: [] }))
    if (name === 'remove-fd') this.kept.delete(args['fdset-id'])
    return name === 'query-named-block-nodes'
      ? [{ 'node-name': 'name-disk', file: '/old', image: { 'virtual-size': 0 } }]
      : {}
  }
}

it('closes in QEMU the file of a block node, and the descriptor of a part, that it has refused', async () => {
  const qemu = new RefusingQemu()
  const qmp = qemu as unknown as QmpClient
  const path = join(temporaryFolder(), 'disk')
  writeFileSync(path, '')
  const opener = new RunningOpener()
  opener.device('/dev/null')
  const filename = opener.disk(path, true)
  const replaced = replaceFile({ machine: () => ({ qmp }), ending: neverAborted }, 'disk', {
    path,
    nodes: [
      { option: 'blockdev', properties: { driver: 'file', 'node-name': 'name-disk.a', filename } },
      { option: 'blockdev', properties: { driver: 'raw', 'node-name': 'name-disk', file: 'name-disk.a' } },
    ],
    opener,
  })
  await expect(replaced).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: 'backend disk: blockdev-add: refused',
  })
  expect([...qemu.kept]).toEqual([])
})
