import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { printed, writeCase } from '../../foreign/case.ts'
import { type ForeignClients, foreignClients } from '../../foreign/clients.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { startAgent } from '../../support/host/agent-process.ts'

describe('clients on other people’s libraries drive the agent on a unix socket', () => {
  let clients: ForeignClients
  let folder: string
  let caseFile: string
  beforeAll(async () => {
    clients = await foreignClients()
    folder = mkdtempSync(join(tmpdir(), 'foreign-'))
    caseFile = join(folder, 'case.json')
    writeCase(caseFile, {
      container: 'foreign-1',
      output: 'from a container\n',
      status: 9,
      rootPath: busyboxRoot(folder),
    })
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it.each(['go', 'python'] as const)(
    '%s: the life of a container, large messages, long polls, a deadline and a hang-up',
    async (language) => {
      const agent = await startAgent()
      try {
        expect(await clients[language](agent.path, caseFile)).toBe(printed('from a container\n'))
      } finally {
        await agent.stop()
      }
    },
  )
})
