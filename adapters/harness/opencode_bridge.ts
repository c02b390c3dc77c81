// omac's plugin for OpenCode. `omac start opencode` and `omac serve opencode` load it by OPENCODE_CONFIG_CONTENT; it
// needs nothing but OpenCode's own runtime (Bun), and no network beyond omac's bridge.
//
// * Each session activates its directory under its own id, when it is created and again for each model request and
//   shell command: that is cheap, and so a new secret or a changed skill is known at the next command.
// * The model gets its skills and the rules of the sandbox at the end of the last system message: strict servers refuse
//   a further one.
// * Shells get the session's own variables, and none of those by which omac's bridge is reached.
// * A tool that would write outside the worktree is denied by the same guard that the hooks of other agents call.

import type { Plugin } from "@opencode-ai/plugin"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"

type Manifest = { env: Record<string, string>; context: string }

const WITHIN_MS = 15_000
const CONTROL_VARIABLES = ["OMAC_CONTROL_BASE", "OMAC_CONTROL_SOCKET", "OMAC_CONTROL_TOKEN_FILE"]
const GUARD_NAMES: Record<string, string> = { write: "Write", edit: "Edit", multiedit: "MultiEdit", patch: "apply_patch" }

const token = (() => {
  try {
    return readFileSync(process.env.OMAC_CONTROL_TOKEN_FILE ?? "", "ascii").trim()
  } catch {
    return ""
  }
})()

async function call(action: string, document: object): Promise<any> {
  const socket = process.env.OMAC_CONTROL_SOCKET
  const base = socket ? "http://localhost" : process.env.OMAC_CONTROL_BASE
  const answer = await fetch(`${base}/__omac__/${action}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify(document),
    signal: AbortSignal.timeout(WITHIN_MS),
    ...(socket ? { unix: socket } : {}),
  } as RequestInit)
  const content = await answer.json()
  if (!answer.ok) throw new Error(`omac refused ${action}: ${content.error}`)
  return content
}

function guarded(tool: string, args: Record<string, unknown>, session: string, directory: string): string | undefined {
  const name = GUARD_NAMES[tool] ?? tool
  const input = { ...args, ...(typeof args.filePath === "string" ? { file_path: args.filePath } : {}) }
  const payload = { hook_event_name: "PreToolUse", session_id: session, cwd: directory, tool_name: name, tool_input: input }
  const hook = process.env.OMAC_HOOK
  if (!hook) return "omac: the write guard cannot be called: OMAC_HOOK is not set"
  const done = spawnSync("/bin/sh", ["-c", `${hook} pre-tool-use`], {
    input: JSON.stringify(payload),
    env: { ...process.env, OMAC_WORKDIR: directory },
    encoding: "utf8",
  })
  return done.status === 0 ? undefined : done.stderr || "omac: the write guard failed"
}

export const OmacBridge: Plugin = async ({ directory, worktree }) => {
  const root = worktree && worktree !== "/" ? worktree : directory

  const activate = async (session?: string): Promise<Manifest> => {
    try {
      return await call("activate", { dir: root, ...(session ? { session } : {}) })
    } catch (problem) {
      console.error(`omac: ${problem}`)
      return { env: {}, context: `omac's skills cannot be used now: ${problem}` }
    }
  }

  return {
    event: async ({ event }) => {
      if (event.type === "session.created") await activate(event.properties.info.id)
      if (event.type === "session.deleted")
        await call("deactivate", { dir: root, session: event.properties.info.id }).catch(() => undefined)
    },
    "experimental.chat.system.transform": async ({ sessionID }: { sessionID?: string }, { system }: { system: string[] }) => {
      const { context } = await activate(sessionID)
      const text = [process.env.OMAC_SANDBOX_BRIEFING, context].filter(Boolean).join("\n")
      if (text && system.length > 0) system[system.length - 1] += `\n\n${text}`
      else if (text) system.push(text)
    },
    "shell.env": async ({ sessionID }: { sessionID?: string }, { env }: { env: Record<string, string> }) => {
      const manifest = await activate(sessionID)
      for (const name of CONTROL_VARIABLES) env[name] = ""
      Object.assign(env, manifest.env)
    },
    "tool.execute.before": async ({ tool, sessionID }, { args }) => {
      const denial = tool in GUARD_NAMES || tool === "bash" ? guarded(tool, args, sessionID, root) : undefined
      if (denial) throw new Error(denial)
    },
  }
}
