import { describe, expect, it } from 'vitest'
import { decodeJson } from '../../../src/client/json/to-json.ts'
import { describedMethod } from '../../../src/ctl/methods/schema.ts'
import { parseReferenceCommand } from '../../../src/ctl/reference/command-text.ts'
import { ReferenceState, referenceRequests } from '../../../src/ctl/reference/requests.ts'
import { recordedRequest } from '../../recordings/recorded-request.ts'
import { recordedCommands } from '../../recordings/reference-commands.ts'

const AS_SENT = { decode: (bytes: Uint8Array) => bytes }

describe('a command of the reference’s tool', () => {
  it.each(recordedCommands())('sends the request of line %i: %s', async (line, text) => {
    const command = parseReferenceCommand(text)
    const method = describedMethod(command.name)
    const state = new ReferenceState({ bundleFolder: undefined, hasAutoValues: true })
    const recorded = recordedRequest(AS_SENT, 'agent-ctl.every-command', line)
    let requests = 0
    for await (const request of referenceRequests(method, command, state)) {
      requests += 1
      expect(decodeJson(method.input, request)).toEqual(decodeJson(method.input, recorded))
    }
    expect(requests).toBe(1)
  })

  it('adds nothing to a request without automatic values', async () => {
    const state = new ReferenceState({ bundleFolder: undefined, hasAutoValues: false })
    for (const name of ['GetGuestDetails', 'StartContainer', 'CreateSandbox']) {
      const requests = referenceRequests(describedMethod(name), parseReferenceCommand(name), state)
      for await (const request of requests) expect(request).toHaveLength(0)
    }
  })
})
