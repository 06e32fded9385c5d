;; A policy for Kubewarden (waPC) that refuses requests in which a text occurs.
;;
;; Settings: {"text": "..."}. The host writes {"request":{...},"settings":{"text":"..."}} without
;; blanks, so that the settings are the last part of the message.
(module
  (import "wapc" "__guest_request" (func $request (param i32 i32)))
  (import "wapc" "__guest_response" (func $respond (param i32 i32)))

  ;; The message stands at 65536 and may take the rest of the memory: nearly 8 MiB.
  (memory (export "memory") 129)
  (data (i32.const 0) "\"settings\":{\"text\":\"")
  (data (i32.const 64) "{\"text\":\"")
  (data (i32.const 128) "{\"accepted\":true}")
  (data (i32.const 192) "{\"accepted\":false,\"message\":\"the request holds a text that is forbidden\",\"code\":403}")
  (data (i32.const 320) "{\"valid\":true}")
  (data (i32.const 384) "{\"valid\":false,\"message\":\"settings need one field, text, that is not empty\"}")
  (data (i32.const 512) "\"v1\"")
  ;; From 1024 to 65536: the text of the settings.

  (func $same (param $left i32) (param $right i32) (param $length i32) (result i32)
    (local $at i32)
    (block $differ
      (loop $next
        (if (i32.ge_u (local.get $at) (local.get $length)) (then (return (i32.const 1))))
        (br_if $differ
          (i32.ne
            (i32.load8_u (i32.add (local.get $left) (local.get $at)))
            (i32.load8_u (i32.add (local.get $right) (local.get $at)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; Where a text begins between two places, sought from the left; 0 where it is not there.
  (func $find (param $text i32) (param $length i32) (param $from i32) (param $to i32) (result i32)
    (loop $next
      (if (i32.gt_u (i32.add (local.get $from) (local.get $length)) (local.get $to))
        (then (return (i32.const 0))))
      (if (call $same (local.get $text) (local.get $from) (local.get $length))
        (then (return (local.get $from))))
      (local.set $from (i32.add (local.get $from) (i32.const 1)))
      (br $next))
    (i32.const 0))

  ;; The same, sought from the right: what stands in the request must not pass for settings.
  (func $find_last (param $text i32) (param $length i32) (param $from i32) (param $to i32) (result i32)
    (local $at i32)
    (local.set $at (i32.sub (local.get $to) (local.get $length)))
    (loop $next
      (if (i32.lt_s (local.get $at) (local.get $from)) (then (return (i32.const 0))))
      (if (call $same (local.get $text) (local.get $at) (local.get $length))
        (then (return (local.get $at))))
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (br $next))
    (i32.const 0))

  ;; Copies the text of the settings to 1024 without the backslashes of JSON; its length.
  (func $take_text (param $from i32) (param $to i32) (result i32)
    (local $length i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $from) (local.get $to)))
        (if (i32.eq (i32.load8_u (local.get $from)) (i32.const 92))
          (then (local.set $from (i32.add (local.get $from) (i32.const 1)))))
        ;; A text that does not fit is refused: the policy traps.
        (if (i32.ge_u (local.get $length) (i32.const 64512)) (then (unreachable)))
        (i32.store8 (i32.add (i32.const 1024) (local.get $length)) (i32.load8_u (local.get $from)))
        (local.set $length (i32.add (local.get $length) (i32.const 1)))
        (local.set $from (i32.add (local.get $from) (i32.const 1)))
        (br $next)))
    (local.get $length))

  (func $validate (param $end i32)
    (local $settings i32) (local $length i32)
    (local.set $settings
      (call $find_last (i32.const 0) (i32.const 20) (i32.const 65536) (local.get $end)))
    (if (i32.eqz (local.get $settings)) (then (unreachable)))
    ;; The message ends with "}} after the text.
    (local.set $length
      (call $take_text
        (i32.add (local.get $settings) (i32.const 20))
        (i32.sub (local.get $end) (i32.const 3))))
    (if (i32.eqz (local.get $length)) (then (unreachable)))
    (if (call $find (i32.const 1024) (local.get $length) (i32.const 65536) (local.get $settings))
      (then (call $respond (i32.const 192) (i32.const 84)))
      (else (call $respond (i32.const 128) (i32.const 17)))))

  (func $validate_settings (param $length i32)
    ;; {"text":"x"} is the shortest.
    (if (i32.and
          (i32.ge_u (local.get $length) (i32.const 12))
          (call $same (i32.const 64) (i32.const 65536) (i32.const 9)))
      (then (call $respond (i32.const 320) (i32.const 14)))
      (else (call $respond (i32.const 384) (i32.const 76)))))

  (func (export "__guest_call") (param $operation i32) (param $length i32) (result i32)
    (if (i32.gt_u (local.get $length) (i32.const 8388608)) (then (unreachable)))
    (call $request (i32.const 32768) (i32.const 65536))
    ;; Operations differ in the lengths of their names.
    (if (i32.eq (local.get $operation) (i32.const 8))
      (then (call $validate (i32.add (i32.const 65536) (local.get $length)))))
    (if (i32.eq (local.get $operation) (i32.const 17))
      (then (call $validate_settings (local.get $length))))
    (if (i32.eq (local.get $operation) (i32.const 16))
      (then (call $respond (i32.const 512) (i32.const 4))))
    (i32.const 1)))
