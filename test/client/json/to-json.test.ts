import { describe, expect, it } from 'vitest'
import { encodeJson } from '../../../src/client/json/from-json.ts'
import { decodeJson } from '../../../src/client/json/to-json.ts'
import { describeMethod } from '../../../src/ctl/methods/describe.ts'
import { METHODS, methodNamed } from '../../../src/ctl/methods/method-names.ts'
import { describedMethod } from '../../../src/ctl/methods/schema.ts'
import { CopyFileRequest, WaitProcessResponse } from '../../../src/gen/agent.ts'
import { HealthCheckResponse } from '../../../src/gen/health.ts'

describe('decodeJson', () => {
  it('shows zeros, names enums, and shows bytes as text where they are', () => {
    const wait = describedMethod('WaitProcess').output
    expect(decodeJson(wait, WaitProcessResponse.encode({ status: 0 }).finish())).toEqual({ status: 0 })
    const check = describedMethod('Check').output
    expect(decodeJson(check, HealthCheckResponse.encode({ status: 1 }).finish())).toEqual({
      status: 'SERVING',
    })
    const copy = describedMethod('CopyFile').input
    const shown = (data: Buffer) =>
      decodeJson(copy, CopyFileRequest.encode(CopyFileRequest.fromPartial({ data })).finish())
    expect(shown(Buffer.from('hé'))).toMatchObject({ data: { text: 'hé' } })
    expect(shown(Buffer.from([255]))).toMatchObject({ data: { base64: '/w==' } })
  })

  it('prints JSON that encodeJson reads', () => {
    const { input } = describedMethod('CopyFile')
    const bytes = CopyFileRequest.encode(
      CopyFileRequest.fromPartial({ path: '/x', data: Buffer.from([0, 255]), fileSize: 5n, uid: -1 }),
    ).finish()
    expect(Buffer.from(encodeJson(input, decodeJson(input, bytes)))).toEqual(Buffer.from(bytes))
  })

  it('says that an answer is no message', () => {
    const { output } = describedMethod('WaitProcess')
    expect(() => decodeJson(output, Buffer.from('garbage'))).toThrow('not a grpc.WaitProcessResponse')
  })
})

describe('describeMethod', () => {
  it('describes every method', () => {
    for (const { method, service } of METHODS) {
      expect(describeMethod(describedMethod(`${service}/${method}`))).toContain(`agent-ctl ${method}`)
    }
  })

  it('shows types, choices and an example', () => {
    const text = describeMethod(describedMethod('UpdateRoutes'))
    expect(text).toContain('family   types.IPFamily: v4 (0), v6 (1)')
    expect(text).toContain('agent-ctl UpdateRoutes routes.Routes[0].dest=text')
  })
})

describe('methodNamed', () => {
  it("knows the reference's spellings", () => {
    expect(methodNamed('GetIptables')?.method).toBe('GetIPTables')
    expect(methodNamed('grpc.Health/check')).toEqual({ service: 'grpc.Health', method: 'Check' })
    expect(methodNamed('grpc.Other/check')).toBeUndefined()
  })
})
