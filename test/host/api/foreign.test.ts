import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { printed, writeCase } from '../../foreign/case.ts'
import { type ForeignClients, foreignClients } from '../../foreign/clients.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('clients on other people’s libraries drive the agent on a unix socket', () => {
  let clients: ForeignClients
  let folder: string
  let caseFile: string
  beforeAll(async () => {
    clients = await foreignClients()
    folder = temporaryFolder()
    caseFile = join(folder, 'case.json')
    writeCase(caseFile, {
      container: 'foreign-1',
      output: 'from a container\n',
      status: 9,
      rootPath: busyboxRoot(folder),
    })
  })

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
